"""Members of a group in the classic protocol: they join, one of them shares out, they commit, come and go."""

import contextlib

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.simulation.client import GROUP_KEY, Unavailable
from tests.simulation.history import Violation
from tests.simulation.workload_groups import Member

_JOIN, _HEARTBEAT, _LEAVE, _SYNC = 11, 12, 13, 14
_PARTITIONS = 2
# A subscription of the consumer protocol, version 0, to the topic that has this name.
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x05plain\xff\xff\xff\xff"


class ClassicMember(Member):
    _id = ""
    _last_generation = 0

    @property
    def _member_id(self) -> str:
        return self._id

    @property
    def _reader(self) -> tuple[str | None, int]:
        # In this protocol, whoever asks may know.
        return None, -1

    async def _heartbeat(self) -> None:
        if self._epoch == 0:
            await self._join()
            return
        body = Struct(group_id=self._group, generation_id=self._epoch, member_id=self._id, group_instance_id=None)
        answer = await self.client.ask_coordinator(GROUP_KEY, self._group, _HEARTBEAT, 4, body)
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.rebalance_in_progress:
            self._epoch = 0
            await self._join()
        elif code in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id):
            self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._id = ""
        self._last_generation = 0

    async def _join(self) -> None:
        """Raises Unavailable."""
        body = Struct(
            group_id=self._group,
            session_timeout=6000,
            rebalance_timeout=8000,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[Struct(name="range", metadata=_SUBSCRIPTION)],
            reason=None,
        )
        joined = await self.client.ask_coordinator(GROUP_KEY, self._group, _JOIN, 9, body)
        code = ErrorCode(joined.error_code)
        if code == ErrorCode.member_id_required:
            self._id = joined.member_id
            return
        if code == ErrorCode.unknown_member_id:
            self._forget()
            return
        if code:
            return
        self._id = joined.member_id
        members = sorted(one.member_id for one in joined.members) if joined.leader == self._id else []
        shares: dict[str, list[str]] = {member: [] for member in members}
        for index in range(_PARTITIONS if members else 0):
            shares[members[index % len(members)]].append(str(index))
        await self._sync(joined.generation_id, {member: ",".join(share) for member, share in shares.items()})

    async def _sync(self, generation: int, shares: dict[str, str]) -> None:
        body = Struct(
            group_id=self._group,
            generation_id=generation,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[Struct(member_id=one, assignment=share.encode()) for one, share in sorted(shares.items())],
        )
        answer = await self.client.ask_coordinator(GROUP_KEY, self._group, _SYNC, 5, body)
        if answer.error_code:
            return
        # One that joins again, and brings nothing new, is told what is.
        if generation < self._last_generation:
            raise Violation(
                16, "epochs grow", f"{self._id} went from generation {self._last_generation} to {generation}"
            )
        self._epoch = self._last_generation = generation
        self._owned = {int(index) for index in answer.assignment.decode().split(",") if index}
        self._positions.clear()
        self._ownership.take(self._id, generation, self._owned)

    async def _leave(self) -> None:
        body = Struct(group_id=self._group, members=[Struct(member_id=self._id, group_instance_id=None, reason=None)])
        self._owned = set()
        with contextlib.suppress(Unavailable):
            await self.client.ask_coordinator(GROUP_KEY, self._group, _LEAVE, 5, body)
        self._forget()
