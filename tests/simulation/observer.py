"""Looks at the nodes from the inside while they run: invariants of states, and of what follows what.

It looks between two callbacks, every tenth of a second and before a process ends. What it remembers is about
incarnations: a node that was started anew is somebody else until it has registered.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.base.errors import Refused
from penstock.broker.broker import Broker
from penstock.broker.metadata_following import CommittedBatch
from penstock.broker.quorum_runner import QuorumRunner
from penstock.broker.transaction_coordinator import TransactionCoordinator
from penstock.cluster.metadata.records import MetadataRecord
from penstock.cluster.partition.partition import Partition
from penstock.cluster.raft.elections import Elections
from penstock.cluster.raft.stored_log import QUORUM_STATE_FILE, parse_quorum_state
from penstock.cluster.raft.voters import ReplicaKey
from penstock.coordinator.transaction.requests import WriteMarkers
from penstock.log.log import Log
from tests.simulation.client import Damaged, records_of
from tests.simulation.cluster import SimCluster, SimHost
from tests.simulation.history import History, TopicPartition, Violation

_ISOLATION_SETTLES_S = 1.0
_RESIGNS_WITHIN_S = 6.0


class Observer:
    def __init__(self, cluster: SimCluster, history: History, *, is_synced: bool) -> None:
        self._cluster = cluster
        self._history = history
        self._is_synced = is_synced
        # By the topic's id, so that a name that is used again is another topic.
        self._leaders: dict[tuple[int, int, int], int] = {}
        self._high_watermarks: dict[tuple[int, int, int, str], int] = {}
        # How far each partition was ever committed.
        self._committed: dict[tuple[int, int], int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._quorum_leaders: dict[int, int] = {}
        # What each metadata offset holds, as the first node that applied it saw it.
        self._metadata: dict[int, MetadataRecord] = {}
        self._metadata_end = 0
        self._watched: set[str] = set()
        # (epoch, vote) that the node's quorum had when its process ended.
        self._votes: dict[int, tuple[int, int]] = {}
        # Leader epochs in which a node led when it lost its memory.
        self._led_before: dict[int, set[tuple[int, int, int]]] = {}
        self._isolated: dict[int, tuple[float, int]] = {}
        # What was found in the middle of production code, which must not be told.
        self._found: list[Violation] = []
        self._truncate_to = Log.truncate_to
        self._watch_truncations()
        # Whom each voter gave its vote, by voter and term; and what it has not told anybody yet.
        self._ballots: dict[tuple[int, int], int] = {}
        self._untold: list[tuple[int, int, int]] = []
        self._cast_vote, self._perform = Elections._cast_vote, QuorumRunner._perform
        self._watch_votes()
        self._send_markers = TransactionCoordinator._send
        self._watch_decisions()
        cluster.on_end = self._on_end
        cluster.on_broker = self._on_broker

    def close(self) -> None:
        Log.truncate_to = self._truncate_to  # type: ignore[method-assign]
        Elections._cast_vote = self._cast_vote  # type: ignore[method-assign]
        QuorumRunner._perform = self._perform  # type: ignore[method-assign]
        TransactionCoordinator._send = self._send_markers  # type: ignore[method-assign]

    def _watch_truncations(self) -> None:
        """8: nobody cuts away a record that somebody has read, and that so is committed."""
        truncate_to, epochs = self._truncate_to, self._history.epochs

        def watched(log: Log, offset: int, now_ms: int) -> list[str]:
            topic, _, index = log.directory.rpartition("-")
            end = log.log_end_offset
            if any(((topic, int(index)), at) in epochs for at in range(offset, end)):
                # Of what has rotted it does not matter.
                with contextlib.suppress(*((Refused, Damaged) if self._cluster.rotten else ())):
                    found = log.read(offset, 1 << 20, end, at_least_one=True)
                    data = b"" if found is None else found.file.read(found.position, found.length)
                    for header, record in records_of(data):
                        at = ((topic, int(index)), record.offset)
                        if record.offset >= offset and epochs.get(at) == header.leader_epoch:
                            self._found.append(
                                Violation(8, "truncation", f"{log.directory} is cut at {offset}, with {record.value!r}")
                            )
            return truncate_to(log, offset, now_ms)

        Log.truncate_to = watched  # type: ignore[method-assign,assignment]

    def _watch_votes(self) -> None:
        """11: a voter gives one vote in a term, however often it is asked and restarted."""
        cast_vote, perform = self._cast_vote, self._perform

        def watched_vote(quorum: Elections, candidate: ReplicaKey, now_ms: int) -> None:
            self._untold.append((quorum.key.id, quorum.epoch, candidate.id))
            cast_vote(quorum, candidate, now_ms)

        def watched_perform(runner: QuorumRunner) -> None:
            perform(runner)
            if runner._is_performing:
                return
            # At once: a leader may be elected, commit its own removal, and resign between two looks.
            self._note_quorum_leader(runner)
            if runner._lacks_space:
                # Nobody hears of it until it is written.
                return
            if not self._untold:
                return
            own_id = runner._quorum.key.id
            ballots = [one for one in self._untold if one[0] == own_id]
            self._forget_untold(own_id)
            # Where it could not be written, nobody has heard of it.
            for voter, term, candidate in () if runner._has_failed else ballots:
                first = self._ballots.setdefault((voter, term), candidate)
                if first != candidate:
                    self._found.append(
                        Violation(11, "one vote", f"node{voter} voted for {first} and {candidate} in term {term}")
                    )

        Elections._cast_vote = watched_vote  # type: ignore[method-assign,assignment]
        QuorumRunner._perform = watched_perform  # type: ignore[method-assign,assignment]

    def _forget_untold(self, voter_id: int) -> None:
        self._untold = [one for one in self._untold if one[0] != voter_id]

    def _watch_decisions(self) -> None:
        send, decisions = self._send_markers, self._history.decisions

        def watched(coordinator: TransactionCoordinator, runner: Any, markers: WriteMarkers) -> None:
            decisions.add(
                (markers.transactional_id, markers.producer_id, markers.producer_epoch, bool(markers.is_commit))
            )
            send(coordinator, runner, markers)

        TransactionCoordinator._send = watched  # type: ignore[method-assign,assignment]

    # Occasions

    def _on_broker(self, host: SimHost, broker: Broker) -> None:
        """A node is being started, and has not done anything yet."""
        on_committed = broker.on_committed
        applied = 0

        def watched(batch: CommittedBatch) -> Iterator[None]:
            nonlocal applied
            self._check_metadata(host, batch)
            if batch.base_offset < applied:
                self._found.append(
                    Violation(15, "a prefix", f"{host.name} applied {batch.base_offset} after {applied}")
                )
            applied = batch.base_offset + len(batch.records)
            return on_committed(batch)

        broker.on_committed = watched  # type: ignore[method-assign]
        self._check_vote_was_kept(host)

    def _on_end(self, host: SimHost) -> None:
        self.look()
        broker = host.broker
        if broker is None or not hasattr(broker, "quorum"):
            return
        self._forget_untold(host.node_id)
        kept = self._persisted_vote(host)
        if not broker.quorum._has_failed and kept is not None:
            vote = broker.quorum._quorum.vote_state
            self._votes[host.node_id] = kept if broker.quorum._lacks_space else (vote.epoch, vote.voted_id)
        led = self._led_before.setdefault(host.node_id, set())
        led.update((_id(one), one.index, one.leader.leader_epoch) for one in _led(broker) if one.leader is not None)

    def look(self) -> None:
        if self._found:
            raise self._found[0]
        running = [
            (host, host.broker)
            for host in self._cluster.hosts.values()
            if host.broker is not None and host.loop is not None and hasattr(host.broker, "quorum")
        ]
        for host, broker in running:
            self._check_quorum(host, broker)
            if broker.is_ready.is_set():
                for partition in broker.hosting:
                    if partition.leader is not None and partition.leader.is_leading:
                        self._check_leader(host, partition)
        self._check_controller()

    # Partitions

    def _check_leader(self, host: SimHost, partition: Partition) -> None:
        assert host.loop is not None
        leader, name, index = partition.leader, _id(partition), partition.index
        assert leader is not None
        epoch = leader.leader_epoch
        # 5: at most one leader per partition and epoch.
        other = self._leaders.setdefault((name, index, epoch), host.node_id)
        if other != host.node_id:
            raise Violation(5, "one leader", f"{partition.name} epoch {epoch}: nodes {other} and {host.node_id} lead")
        # 4: the high watermark never goes back within a tenure, and lies within the log.
        key = (name, index, epoch, host.loop.name)
        before = self._high_watermarks.get(key, -1)
        if leader.high_watermark < before or leader.high_watermark > partition.log.log_end_offset:
            raise Violation(4, "high watermark", f"{partition.name}: {leader.high_watermark} after {before}")
        self._high_watermarks[key] = leader.high_watermark
        # 7: who lost its memory leads in a later epoch, if at all.
        if (name, index, epoch) in self._led_before.get(host.node_id, ()):
            raise Violation(
                7, "unclean shutdown", f"{host.name} leads {partition.name} in epoch {epoch} as before it ended"
            )
        place = (name, index)
        self._committed[place] = max(self._committed.get(place, 0), leader.high_watermark)
        self.committed[partition.topic, index] = self._committed[place]

    # The quorum

    def _note_quorum_leader(self, runner: QuorumRunner) -> None:
        """11: at most one leader per term."""
        quorum = runner._quorum
        own_id = quorum.key.id
        if quorum.leader_id == own_id and not runner._has_failed:
            other = self._quorum_leaders.setdefault(quorum.epoch, own_id)
            if other != own_id:
                self._found.append(
                    Violation(11, "one leader per term", f"term {quorum.epoch}: nodes {other} and {own_id}")
                )

    @property
    def _last_term(self) -> int:
        return max(self._quorum_leaders, default=-1)

    def _check_quorum(self, host: SimHost, broker: Broker) -> None:
        quorum = broker.quorum._quorum
        if broker.quorum._has_failed:
            return
        epoch = quorum.epoch
        # 12: it has everything that was ever committed, unless it is one of the past that does not know it yet.
        is_last = quorum.leader_id == host.node_id and epoch == self._last_term
        if is_last and broker.quorum.next_offset < self._metadata_end:
            raise Violation(
                12,
                "leader completeness",
                f"{host.name} leads term {epoch} with {broker.quorum.next_offset} of {self._metadata_end}",
            )
        self._check_isolation(host, broker, epoch)

    def _check_isolation(self, host: SimHost, broker: Broker, epoch: int) -> None:
        """14: who is cut off raises no term, and leads no longer than it takes to notice."""
        assert host.loop is not None
        others = [one.name for one in self._cluster.hosts.values() if one is not host]
        link = self._cluster.network.link
        links = [link(*pair) for other in others for pair in ((host.name, other), (other, host.name))]
        if not all(one.is_cut for one in links) or host.loop.is_held:
            self._isolated.pop(host.node_id, None)
            return
        # Who is left alone with the vote needs nobody else to lead.
        quorum = broker.quorum._quorum
        is_only_voter = quorum.voters.is_only(quorum.key)
        now_s = self._cluster.scheduler.now_s
        since_s, before = self._isolated.setdefault(host.node_id, (now_s, epoch))
        last_cut_s = max(one.cut_at_s for one in links)
        if last_cut_s > since_s:
            # Between two looks somebody could be reached.
            since_s, before = last_cut_s, epoch
        if now_s - since_s < _ISOLATION_SETTLES_S:
            # A vote that was on its way, and was granted, may still raise it.
            self._isolated[host.node_id] = (since_s, epoch)
        elif epoch > before + (self._quorum_leaders.get(before) == host.node_id):
            # A leader that resigned leaves its term behind, as in Kafka: the one that follows is another's by then.
            raise Violation(14, "pre-vote", f"{host.name}, cut off, went from term {before} to {epoch}")
        elif now_s - since_s > _RESIGNS_WITHIN_S and broker.quorum.leader_id == host.node_id and not is_only_voter:
            raise Violation(14, "check-quorum", f"{host.name}, cut off for {now_s - since_s:.1f} s, still leads")

    def _check_metadata(self, host: SimHost, batch: CommittedBatch) -> None:
        """12, 15: what is committed at an offset is the same everywhere, for ever."""
        for position, record in enumerate(batch.records):
            offset = batch.base_offset + position
            if self._metadata.setdefault(offset, record) != record:
                self._found.append(Violation(15, "a prefix", f"{host.name} has another record at offset {offset}"))
        self._metadata_end = max(self._metadata_end, batch.base_offset + len(batch.records))

    def _persisted_vote(self, host: SimHost) -> tuple[int, int] | None:
        if not host.disk.exists(QUORUM_STATE_FILE):
            return None
        vote = parse_quorum_state(host.disk.read_file(QUORUM_STATE_FILE))
        return vote.epoch, vote.voted_id

    def _check_vote_was_kept(self, host: SimHost) -> None:
        """11: term and vote are on the disk before anybody hears of them."""
        known = self._votes.get(host.node_id)
        if known is None:
            return
        kept = self._persisted_vote(host)
        if kept is None or kept[0] < known[0] or (kept[0] == known[0] and known[1] >= 0 and kept[1] != known[1]):
            self._found.append(
                Violation(11, "one persisted vote", f"{host.name} had {known} before it ended, and has {kept}")
            )

    # The controller

    def _check_controller(self) -> None:
        """6: in the controller's view, ISR and ELR are disjoint, fenced brokers in neither; who is in sync and runs has
        everything that is committed."""
        for broker in self._cluster.brokers():
            if not broker.controller.is_active or broker.quorum.epoch < self._last_term:
                # One that is put out and does not know it yet decides nothing any more.
                continue
            all_fenced = {one for one, registration in broker.image.brokers.items() if registration.fenced}
            running = self._running(broker)
            for topic in broker.image.topics.values():
                name, topic_id = topic.name.encode(), topic.id.int
                hosted = {node_id: one.topics_by_name.get(name, {}) for node_id, one in running.items()}
                for index, state in topic.partitions.items():
                    if state.eligible_leader_replicas and set(state.isr) & set(state.eligible_leader_replicas):
                        raise Violation(6, "ISR and ELR", f"{topic.name}-{index}: {state}")
                    if all_fenced and not all_fenced.isdisjoint(state.isr):
                        fenced = all_fenced.intersection(state.isr)
                        raise Violation(6, "fenced brokers", f"{topic.name}-{index}: {fenced} in {state.isr}")
                    self._check_in_sync(hosted, topic_id, index, state.isr)

    def _running(self, controller: Broker) -> dict[int, Broker]:
        """Those who run as the controller knows them, and not as somebody else since."""
        registered = controller.image.brokers
        return {
            broker.node_id: broker
            for broker in self._cluster.brokers()
            if broker.node_id in registered and broker.life.epoch == registered[broker.node_id].epoch
        }

    def _check_in_sync(
        self, hosted: Mapping[int, Mapping[int, Partition]], topic_id: int, index: int, isr: tuple[int, ...]
    ) -> None:
        committed = self._committed.get((topic_id, index), 0)
        if not committed:
            return
        for node_id in isr:
            partition = hosted[node_id].get(index) if node_id in hosted else None
            if partition is None or partition.loaded_log is None or partition.has_failed:
                continue
            end = partition.loaded_log.log_end_offset
            if end < committed and _id(partition) == topic_id:
                raise Violation(
                    6,
                    "in sync",
                    f"{partition.name}: node{node_id} in {isr} ends at {end} of {committed}",
                )

    # Healing

    def is_healed(self) -> bool:
        return self.why_not_healed() == ""

    def why_not_healed(self) -> str:
        if not self._cluster.is_ready:
            down = [host.name for host in self._cluster.hosts.values() if not host.is_ready]
            return f"not ready: {', '.join(down)}"
        active = [broker for broker in self._cluster.brokers() if broker.controller.is_active]
        if len(active) != 1:
            return f"{len(active)} active controllers"
        for broker in self._cluster.brokers():
            if broker.quorum.applied_offset != active[0].quorum.applied_offset:
                return f"node {broker.node_id} is behind in the metadata"
        for topic in active[0].image.topics.values():
            for index, partition in topic.partitions.items():
                if len(partition.isr) < len(partition.replicas) or partition.leader < 0 or partition.is_reassigning:
                    return f"{topic.name}-{index}: leader {partition.leader}, in sync {partition.isr}"
        return ""


def _id(partition: Partition) -> int:
    return partition.topic_id.int


def _led(broker: Broker) -> Iterator[Partition]:
    return (one for one in broker.hosting if one.leader is not None and one.leader.is_leading)
