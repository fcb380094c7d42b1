"""The quorum's own records, between the metadata records in the log and around them in snapshots: Kafka's control
records of types 2 to 6, one batch for those that belong together.
"""

from collections.abc import Iterable, Iterator
from struct import Struct as Packer
from typing import Any, NamedTuple

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0.data import VotersRecord

from penstock.base.ports import Bytes
from penstock.cluster.raft.voters import KRAFT_VERSION_STATIC, Endpoint, Voter, VoterSet
from penstock.protocol.batch import CONTROL, HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_header
from penstock.protocol.messages import Malformed, Struct, decode, encode
from penstock.protocol.records import CorruptRecords, Record, build_batch, iterate_records

LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

_KEY = Packer(">hh")
_KEY_VERSION = 0


class ControlRecord(NamedTuple):
    type: int
    value: bytes


class VoterChange(NamedTuple):
    """A record that changed who votes, or the kraft.version."""

    offset: int
    voters: VoterSet | None = None
    kraft_version: int | None = None


def leader_change(leader_id: int, voters: Iterable[int], granting_voters: Iterable[int]) -> ControlRecord:
    message = Struct(
        version=0,
        leader_id=leader_id,
        voters=[Struct(voter_id=voter) for voter in voters],
        granting_voters=[Struct(voter_id=voter) for voter in granting_voters],
    )
    return ControlRecord(LEADER_CHANGE, bytes(encode(LeaderChangeMessage, message)))


def kraft_version(version: int) -> ControlRecord:
    return ControlRecord(KRAFT_VERSION, bytes(encode(KRaftVersionRecord, Struct(version=0, k_raft_version=version))))


def kraft_voters(voters: VoterSet) -> ControlRecord:
    listed = [
        Struct(
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            endpoints=[Struct(name=one.listener, host=one.host, port=one.port) for one in voter.endpoints],
            k_raft_version_feature=Struct(
                min_supported_version=voter.version_min, max_supported_version=voter.version_max
            ),
        )
        for voter in voters
    ]
    return ControlRecord(KRAFT_VOTERS, bytes(encode(VotersRecord, Struct(version=0, voters=listed))))


def control_batch(
    records: list[ControlRecord], timestamp: int, *, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    return build_batch(
        [
            Record(base_offset + delta, timestamp, _KEY.pack(_KEY_VERSION, record.type), record.value)
            for delta, record in enumerate(records)
        ],
        attributes=CONTROL,
        leader_epoch=leader_epoch,
    )


def snapshot_opening(
    last_contained_timestamp: int, voters: VoterSet, version: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """The first batch of a snapshot, at offset 0: its header, and who voted when it was taken."""
    header = encode(SnapshotHeaderRecord, Struct(version=0, last_contained_log_timestamp=last_contained_timestamp))
    records = [ControlRecord(SNAPSHOT_HEADER, bytes(header))]
    if version > KRAFT_VERSION_STATIC:
        records += [kraft_version(version), kraft_voters(voters)]
    return control_batch(records, timestamp, leader_epoch=leader_epoch)


def snapshot_closing(base_offset: int, leader_epoch: int, timestamp: int) -> bytearray:
    footer = ControlRecord(SNAPSHOT_FOOTER, bytes(encode(SnapshotFooterRecord, Struct(version=0))))
    return control_batch([footer], timestamp, base_offset=base_offset, leader_epoch=leader_epoch)


def batches_of(data: Bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in `data`; one that is cut short at the end is left out."""
    view = memoryview(data)
    position = 0
    while position + HEADER_BYTES <= len(view):
        header = read_header(view, position)
        if header.batch_length < HEADER_BYTES - 12 or position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


def voter_changes(data: Bytes) -> Iterator[VoterChange]:
    """What batches say about voters. Raises CorruptRecords."""
    for header, batch in batches_of(data):
        if not header.is_control:
            continue
        for record in iterate_records(batch, header):
            try:
                change = _voter_change(record)
            except Malformed as error:
                raise CorruptRecords(f"the control record at {record.offset} cannot be read: {error}") from error
            if change is not None:
                yield change


def _voter_change(record: Record) -> VoterChange | None:
    if record.key is None or record.value is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    if kind == KRAFT_VERSION:
        message: Any = decode(KRaftVersionRecord, record.value)
        return VoterChange(record.offset, kraft_version=message.k_raft_version)
    if kind == KRAFT_VOTERS:
        message = decode(VotersRecord, record.value)
        return VoterChange(record.offset, voters=VoterSet(_voter(voter) for voter in message.voters))
    return None


def _voter(voter: Any) -> Voter:
    supported = voter.k_raft_version_feature
    return Voter(
        voter.voter_id,
        voter.voter_directory_id,
        tuple(Endpoint(one.name, one.host, one.port) for one in voter.endpoints),
        supported.min_supported_version,
        supported.max_supported_version,
    )


class SnapshotContents(NamedTuple):
    voters: VoterSet | None
    kraft_version: int | None


def check_snapshot(data: Bytes) -> SnapshotContents | None:
    """Whether a snapshot is whole, from its header record to its footer, with every checksum right: what it says of the
    voters, or None. A damaged one must never take the place of a log."""
    voters: VoterSet | None = None
    version: int | None = None
    position = 0
    kinds: list[int] = []
    try:
        for header, batch in batches_of(data):
            if header.magic != MAGIC or not crc_is_valid(batch, header):
                return None
            position += header.size
            if header.is_control:
                for record in iterate_records(batch, header):
                    kinds.append(_KEY.unpack_from(record.key or bytes(_KEY.size))[1])
                for change in voter_changes(batch):
                    voters = change.voters or voters
                    version = change.kraft_version if change.kraft_version is not None else version
    except CorruptRecords:
        return None
    if position != len(data) or len(kinds) < 2 or kinds[0] != SNAPSHOT_HEADER or kinds[-1] != SNAPSHOT_FOOTER:
        return None
    return SnapshotContents(voters, version)
