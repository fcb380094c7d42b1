"""What is in the log: Fetch and FetchSnapshot on the leader's and on the follower's side, proposals, and the high
watermark. A follower's fetch offset is its acknowledgement, so it fetches on only when what it has is synced.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskFull
from penstock.cluster.raft import control_records
from penstock.cluster.raft.effects import Committed, Leading, SnapshotInstalled, StoreSnapshot, Sync
from penstock.cluster.raft.elections import Elections
from penstock.cluster.raft.leadership import Leadership, ParkedFetch
from penstock.cluster.raft.log import BOOTSTRAP_SNAPSHOT_ID, Validity, truncation_offset, validate_fetch
from penstock.cluster.raft.roles import Download, Following, Unattached
from penstock.cluster.raft.rpc import (
    UNKNOWN_HIGH_WATERMARK,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
)
from penstock.cluster.raft.voters import Node
from penstock.protocol.records import CorruptRecords

_FIRST_BOOTSTRAP_ID = -2
_DISCOVERY_PAUSES = 5


class Replication(Elections):
    # The leader's side

    def propose(self, batch: bytearray, now_ms: int) -> int | None:
        """Appends one batch as the leader; it is decided when the high watermark reaches the offset returned. None
        when this node does not lead, or not yet: see `Leading`. Raises DiskFull, the log being as it was."""
        role = self._role
        if not isinstance(role, Leadership) or not self.is_leading:
            return None
        try:
            self._log.append(batch, self.epoch, now_ms)
        except DiskFull:
            self._leave_to_others(role)
            raise
        self._request_sync()
        self._wake_fetches(role, now_ms)
        return self._log.end_offset

    def _leave_to_others(self, leadership: Leadership) -> None:
        """This node has no space for what it should decide; perhaps another one has."""
        if not self.voters.is_only(self.key):
            leadership.is_resigning = True

    def _leader_only_error(self, epoch: int) -> ErrorCode | None:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.epoch:
            return ErrorCode.unknown_leader_epoch
        return None if isinstance(self._role, Leadership) else ErrorCode.not_leader_or_follower

    def _handle_fetch(self, token: int, request: FetchRequest, now_ms: int) -> None:
        error: ErrorCode | None
        if (
            request.wait_ms_max < 0
            or request.fetch_offset < 0
            or request.last_fetched_epoch < 0
            or request.last_fetched_epoch > request.leader_epoch
            or request.replica.id == self.key.id
        ):
            error = ErrorCode.invalid_request
        else:
            error = self._leader_only_error(request.leader_epoch)
        if error is not None:
            self._answer(token, FetchResponse(error, self._hint()))
            return
        leadership = self._role
        assert isinstance(leadership, Leadership)
        response = self._fetch_response(leadership, request)
        if response.diverging is None and response.snapshot_id is None and request.replica.id >= 0:
            leadership.record_fetch(request.replica, request.fetch_offset, self._log.end_offset, now_ms)
            before = self.high_watermark
            self._advance_high_watermark(leadership, now_ms)
            if self._role is not leadership or self.high_watermark != before:
                response = self._fetch_response(leadership, request)._replace(leader=self._hint())
        if self._is_due(leadership, request, response):
            self._answer(token, response)
        else:
            leadership.parked.append(ParkedFetch(token, request, now_ms + request.wait_ms_max))

    def _is_due(self, leadership: Leadership, request: FetchRequest, response: FetchResponse) -> bool:
        return bool(
            self._role is not leadership
            or response.records
            or response.diverging
            or response.snapshot_id
            or request.wait_ms_max == 0
            or request.high_watermark < response.high_watermark
        )

    def _fetch_response(self, leadership: Leadership, request: FetchRequest) -> FetchResponse:
        validity = self._validate(request)
        records = b""
        if validity == Validity() and request.fetch_offset < self._log.end_offset:
            records = self._log.read(request.fetch_offset, min(request.bytes_max, self.config.fetch_bytes_max))
        return FetchResponse(
            ErrorCode.none,
            self._hint(),
            self.high_watermark if leadership.is_established else UNKNOWN_HIGH_WATERMARK,
            self._log.start_offset,
            validity.diverging,
            validity.snapshot_id,
            records,
        )

    def _validate(self, request: FetchRequest) -> Validity:
        return validate_fetch(self._log, request.fetch_offset, request.last_fetched_epoch)

    def _wake_fetches(self, leadership: Leadership, now_ms: int) -> None:
        """Those that have waited long enough, for records or, from KIP-1166 on, for the high watermark."""
        end_offset = self._log.end_offset
        high_watermark = self.high_watermark if leadership.is_established else UNKNOWN_HIGH_WATERMARK
        parked, leadership.parked = leadership.parked, []
        for fetch in parked:
            asked = fetch.request
            if asked.fetch_offset < end_offset or asked.high_watermark < high_watermark or now_ms >= fetch.deadline_ms:
                self._answer(fetch.token, self._fetch_response(leadership, asked))
            else:
                leadership.parked.append(fetch)

    def _advance_high_watermark(self, leadership: Leadership, now_ms: int) -> None:
        offset = self._committable_offset(leadership)
        if offset is None or offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._emit(Committed(offset))
        if not leadership.is_established:
            leadership.is_established = True
            self._emit(Leading(leadership.epoch))
        self._voters_committed(leadership, now_ms)
        if self._role is leadership:
            self._wake_fetches(leadership, now_ms)

    def _committable_offset(self, leadership: Leadership) -> int | None:
        """What a majority holds, once that includes an entry of the leader's own epoch (Raft 5.4.2): an earlier
        epoch's entry on a majority may still be overwritten."""
        offset = leadership.majority_offset(self._synced_offset)
        return offset if offset > leadership.start_offset else None

    def _voters_committed(self, leadership: Leadership, now_ms: int) -> None:
        """The high watermark has moved: a change of voters may be decided."""
        raise NotImplementedError

    def _handle_fetch_snapshot(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._leader_only_error(request.leader_epoch)
        size = None
        if error is None:
            known = (
                None if request.snapshot_id == BOOTSTRAP_SNAPSHOT_ID else self._log.snapshot_size(request.snapshot_id)
            )
            if known is None:
                error = ErrorCode.snapshot_not_found
            elif not 0 <= request.position < known:
                error = ErrorCode.position_out_of_range
            size = known
        if error is not None or size is None:
            self._answer(token, FetchSnapshotResponse(error or ErrorCode.snapshot_not_found, self._hint()))
            return
        assert isinstance(self._role, Leadership)
        if request.replica.id >= 0 and request.replica.id != self.key.id:
            self._role.record_contact(request.replica, now_ms)
        length = min(max(request.bytes_max, 0), self.config.fetch_bytes_max, size - request.position)
        data = self._log.read_snapshot(request.snapshot_id, request.position, length)
        self._answer(
            token,
            FetchSnapshotResponse(ErrorCode.none, self._hint(), request.snapshot_id, size, request.position, data),
        )

    # The follower's side

    def _handle_fetch_response(self, node_id: int, response: FetchResponse, now_ms: int) -> bool:
        if not self._heed(response.error, response.leader, now_ms):
            following = self._role
            if isinstance(following, Following) and following.leader.id == node_id:
                if response.error is ErrorCode.not_leader_or_follower:
                    # It has resigned, or was restarted.
                    self._leader_failed(following, now_ms)
                elif response.error not in (ErrorCode.none, ErrorCode.fenced_leader_epoch):
                    return False
            elif isinstance(self._role, Unattached):
                self._role.discover_at_ms = now_ms + self.config.retry_backoff_ms * _DISCOVERY_PAUSES
            return response.error is not ErrorCode.not_leader_or_follower
        following = self._role
        if not isinstance(following, Following) or response.leader.leader_id != following.leader.id:
            return True
        if response.diverging is not None:
            is_good = self._truncate_to(response.diverging, now_ms)
        elif response.snapshot_id is not None:
            is_good = self._begin_download(following, response.snapshot_id)
        else:
            is_good = self._append_fetched(response, now_ms)
        if is_good:
            self._heard_leader(following, now_ms)
        return is_good

    def _heard_leader(self, following: Following, now_ms: int) -> None:
        following.has_fetched = True
        following.is_leader_gone = False
        following.failures = 0
        following.fetch_deadline_ms = now_ms + self._fetch_timeout_ms()
        self.leaders_heard_ms = {following.leader.id: now_ms}

    def _truncate_to(self, diverging: OffsetAndEpoch, now_ms: int) -> bool:
        offset = truncation_offset(self._log, diverging)
        if offset < self.high_watermark:
            self._fault(f"the leader asks to cut the log at {offset}, below what is committed ({self.high_watermark})")
            return False
        self._log.truncate(offset, now_ms)
        self._history.truncate(offset)
        self._cut_log(offset)
        return True

    def _append_fetched(self, response: FetchResponse, now_ms: int) -> bool:
        end_offset = self._log.end_offset
        if response.records:
            try:
                try:
                    self._log.append_as_follower(response.records, now_ms)
                finally:
                    # What was whole is kept, also where the rest is damaged or there is no space for it.
                    self._read_voters(end_offset)
            except (DiskFull, Refused, CorruptRecords) as problem:
                self._fault(f"the leader's records cannot be taken over: {problem}")
                return False
            finally:
                self._request_sync()
        self._commit_up_to(response.high_watermark)
        return True

    def _commit_up_to(self, high_watermark: int) -> None:
        offset = min(high_watermark, self._log.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._emit(Committed(offset))

    def _begin_download(self, following: Following, snapshot_id: OffsetAndEpoch) -> bool:
        end = self._end()
        if (snapshot_id.epoch, snapshot_id.offset) <= (
            end.epoch,
            end.offset,
        ) or snapshot_id.offset < self.high_watermark:
            self._fault(f"the leader offers a snapshot {tuple(snapshot_id)} that is behind this log's end {tuple(end)}")
            return False
        following.download = Download(snapshot_id)
        return True

    def _handle_fetch_snapshot_response(self, node_id: int, response: FetchSnapshotResponse, now_ms: int) -> bool:
        is_there = response.error not in (ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range)
        if is_there and not self._heed(response.error, response.leader, now_ms):
            return response.error is ErrorCode.none
        following = self._role
        if not isinstance(following, Following) or following.download is None:
            return True
        download = following.download
        if (
            not is_there
            or response.snapshot_id != download.snapshot_id
            or response.position != download.position
            or not response.data
        ):
            # The leader has a newer one by now: it will name it.
            following.download = None
            return is_there
        try:
            self._log.receive_snapshot(download.snapshot_id, download.position, response.data)
        except DiskFull as problem:
            self._fault(f"the leader's snapshot cannot be taken over: {problem}")
            following.download = None
            return False
        download.position += len(response.data)
        self._heard_leader(following, now_ms)
        if download.position >= response.size:
            if control_records.check_snapshot(self._log.received_snapshot(download.snapshot_id)) is None:
                self._fault(f"the snapshot {tuple(download.snapshot_id)} that the leader sent is damaged")
                following.download = None
                return False
            download.is_storing = True
            self._emit(StoreSnapshot(download.snapshot_id))
        return True

    def snapshot_stored(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """What `StoreSnapshot` asked for is done. Where another leader is followed by now, it is of no more use."""
        following = self._role
        download = following.download if isinstance(following, Following) else None
        if (
            isinstance(following, Following)
            and download is not None
            and download.is_storing
            and download.snapshot_id == snapshot_id
        ):
            following.download = None
            contents = control_records.check_snapshot(self._log.received_snapshot(snapshot_id))
            assert contents is not None
            self._log.install_snapshot(snapshot_id, now_ms)
            self._cut_log(snapshot_id.offset)
            self._synced_offset = snapshot_id.offset
            self._history.restart_at(snapshot_id.offset, contents.voters, contents.kraft_version)
            self._emit(SnapshotInstalled(snapshot_id))
            self._commit_up_to(snapshot_id.offset)
        self._poll(now_ms)

    def synced(self, sync: Sync, now_ms: int) -> None:
        """What `Sync` asked for is done."""
        if sync == self._sync_under_way:
            self._sync_under_way = None
            if sync.truncations == self._truncations:
                self._synced_offset = max(self._synced_offset, sync.end_offset)
            self._request_sync()
            if isinstance(self._role, Leadership):
                self._advance_high_watermark(self._role, now_ms)
        self._poll(now_ms)

    def _poll(self, now_ms: int) -> None:
        raise NotImplementedError

    def _has_synced(self) -> bool:
        return not self._must_sync() or self._synced_offset >= self._log.end_offset

    def _fetch(self, node: Node, wait_ms_max: int, now_ms: int) -> None:
        if not self._has_synced():
            self._request_sync()
            return
        request = FetchRequest(
            self.config.cluster_id,
            self.key,
            wait_ms_max,
            self.config.fetch_bytes_max,
            self.epoch,
            self._log.end_offset,
            self._log.last_epoch,
            self.high_watermark,
        )
        self._send(node, request, now_ms)

    def _poll_following(self, role: Following, now_ms: int) -> None:
        if now_ms >= role.fetch_deadline_ms:
            if self._may_stand():
                self._become_prospective(now_ms)
            elif self.is_observer:
                self._become_unattached(self.epoch, now_ms)
            return
        if role.is_leader_gone and self.is_voter:
            return
        if not self._connections.is_ready(role.leader.id):
            return
        if role.download is None:
            self._fetch(role.leader, self.config.fetch_wait_ms_max, now_ms)
        elif not role.download.is_storing:
            request = FetchSnapshotRequest(
                self.config.cluster_id,
                self.key,
                self.config.fetch_bytes_max,
                self.epoch,
                role.download.snapshot_id,
                role.download.position,
            )
            self._send(role.leader, request, now_ms)

    def _discover_leader(self, role: Unattached, now_ms: int) -> None:
        """Anybody asked with a Fetch says who leads."""
        if now_ms < role.discover_at_ms or not self._connections.is_idle:
            return
        nodes = [node for node in map(self._node, self.voters.ids) if node is not None and node.id != self.key.id]
        if not self.is_voter:
            nodes += [
                Node(_FIRST_BOOTSTRAP_ID - place, host, port)
                for place, (host, port) in enumerate(self.config.bootstrap_servers)
            ]
        ready = [node for node in nodes if self._connections.is_ready(node.id)]
        role.discover_at_ms = now_ms + self.config.retry_backoff_ms
        if ready:
            self._fetch(ready[self._below(len(ready))], 0, now_ms)
