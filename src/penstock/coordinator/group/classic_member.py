"""A member of a classic group, with what it waits for."""

from typing import NamedTuple

from penstock.coordinator.group.records import MemberMetadata


class WaitingJoin(NamedTuple):
    """A JoinGroup that is answered when the join phase is over."""

    token: int
    version: int


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "waiting_join",
        "waiting_sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        # Name and metadata, the preferred protocol first.
        self.protocols = protocols
        self.assignment = assignment
        self.waiting_join: WaitingJoin | None = None
        self.waiting_sync: int | None = None
        # Until its first JoinGroup is answered it cannot send heartbeats: it does not know its id.
        self.is_new = False

    def needs_no_heartbeat(self) -> bool:
        """A member that waits for us shows by this that it lives; a new one might have gone unnoticed."""
        return not self.is_new and (self.waiting_join is not None or self.waiting_sync is not None)

    def has_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether its protocols are these, in the same order of preference."""
        return list(self.protocols.items()) == list(protocols.items())

    @classmethod
    def from_record(cls, recorded: MemberMetadata, protocol: str | None) -> "ClassicMember":
        return cls(
            recorded.member_id,
            recorded.group_instance_id,
            recorded.client_id,
            recorded.client_host,
            # Only version 0 of the record lacks a rebalance timeout; the session's stood for both then.
            recorded.session_timeout if recorded.rebalance_timeout == -1 else recorded.rebalance_timeout,
            recorded.session_timeout,
            {protocol or "": recorded.subscription},
            recorded.assignment,
        )

    def is_as_in(self, recorded: MemberMetadata, protocol: str | None) -> bool:
        """Whether the record tells nothing new of the member but its assignment."""
        return (
            self.protocols.get(protocol or "") == recorded.subscription
            and self.session_timeout_ms == recorded.session_timeout
            and self.rebalance_timeout_ms == recorded.rebalance_timeout
            and self.instance_id == recorded.group_instance_id
        )
