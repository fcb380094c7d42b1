"""The quorum's own records: written, read back, and understood by Apache Kafka's tools."""

import subprocess
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from penstock.broker.ports import RealDisk
from penstock.cluster.metadata.records import TopicRecord, encode_record
from penstock.cluster.raft import Quorum, QuorumConfig, VoteState
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.control_records import (
    VoterChange,
    check_snapshot,
    control_batch,
    kraft_version,
    kraft_voters,
    leader_change,
    snapshot_closing,
    snapshot_opening,
    voter_changes,
)
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import DIRECTORY, StoredRaftLog, format_quorum_state, parse_quorum_state
from penstock.cluster.raft.voters import VoterSet
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import java_command
from tests.unit.raft.cluster import CLUSTER_ID, SeededRandom, voter

VOTERS = VoterSet(map(voter, (1, 2, 3)))


def test_what_is_written_about_voters_is_read_back_with_its_offsets() -> None:
    batch = control_batch(
        [leader_change(1, [1, 2, 3], [1, 2]), kraft_version(1), kraft_voters(VOTERS)], 5, base_offset=40
    )
    data = build_batch([Record(39, 5, None, b"metadata")]) + batch
    assert list(voter_changes(data)) == [VoterChange(41, kraft_version=1), VoterChange(42, voters=VOTERS)]
    assert read_header(batch).is_control


def snapshot() -> bytes:
    content = build_batch([Record(3, 5, None, b"content")])
    return bytes(snapshot_opening(5, VOTERS, 1, 7, 9) + content + snapshot_closing(4, 7, 9))


def test_a_whole_snapshot_tells_its_voters() -> None:
    contents = check_snapshot(snapshot())
    assert contents is not None
    assert contents == (VOTERS, 1)
    static = check_snapshot(bytes(snapshot_opening(5, VOTERS, 0, 7, 9) + snapshot_closing(1, 7, 9)))
    assert static == (None, None)


def test_a_snapshot_that_is_damaged_anywhere_is_no_snapshot() -> None:
    """Neither base offsets nor leader epochs are under a checksum; everything else is."""
    data = snapshot()
    unprotected: set[int] = set()
    position = 0
    while position < len(data):
        unprotected |= {*range(position, position + 8), *range(position + 12, position + 16)}
        position += read_header(data, position).size
    for place in range(len(data)):
        if place not in unprotected:
            damaged = bytearray(data)
            damaged[place] ^= 1
            assert check_snapshot(damaged) is None, place
    for length in range(len(data)):
        assert check_snapshot(data[:length]) is None


class LoneNode:
    """A quorum of one on a real disk, with the simplest shell there is."""

    def __init__(self, path: Path) -> None:
        self.disk = RealDisk(str(path))
        self.disk.make_directory(DIRECTORY)
        self.log = StoredRaftLog(self.disk, clean=False, now_ms=1000)
        state = VoteState()
        if self.disk.exists(f"{DIRECTORY}/quorum-state"):
            state = parse_quorum_state(self.disk.read_file(f"{DIRECTORY}/quorum-state"))
        self.quorum = Quorum(
            QuorumConfig(CLUSTER_ID),
            voter(1),
            self.log,
            SeededRandom(Random(1)),
            state,
            VoterSet([voter(1)]),
            kraft_version=1,
        )
        self.performed: list[raft_effects.Effect] = []
        self.quorum.start(1000)
        self.perform()

    def perform(self) -> None:
        while effects := self.quorum.take_effects():
            for effect in effects:
                self.performed.append(effect)
                if isinstance(effect, raft_effects.Persist):
                    self.disk.write_file(f"{DIRECTORY}/quorum-state", format_quorum_state(effect.state))
                elif isinstance(effect, raft_effects.Sync):
                    flushed = self.log.flush()
                    for file in flushed.flush.files:
                        file.sync()
                    self.log.mark_flushed(flushed)
                    self.quorum.synced(effect, 1001)


def test_a_lone_node_is_elected_with_one_vote_and_one_sync_and_commits_with_one_more(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    kinds = [type(effect).__name__ for effect in node.performed]
    assert kinds == ["Persist", "Sync", "LeaderChanged", "Committed", "Leading"]
    assert node.quorum.next_deadline_ms() is None
    node.performed.clear()
    assert node.quorum.propose(build_batch([Record(0, 1, None, b"value")]), 1002) == 4
    node.perform()
    assert node.performed == [raft_effects.Sync(4, 0), raft_effects.Committed(4)]
    again = LoneNode(tmp_path)
    assert (again.quorum.epoch, again.quorum.is_leading, again.quorum.high_watermark) == (2, True, 5)


@pytest.mark.java
def test_apache_kafkas_tool_prints_our_metadata_log_and_snapshot(tmp_path: Path) -> None:
    if kafka_jars() is None:
        pytest.skip("Apache Kafka's jars are not here")
    node = LoneNode(tmp_path)
    topic = TopicRecord(name="orders", topic_id=UUID(int=77))
    node.quorum.propose(build_batch([Record(0, 1, None, encode_record(topic))]), 1002)
    node.perform()
    snapshot_id = OffsetAndEpoch(node.quorum.high_watermark, node.quorum.epoch)
    voters, version = node.quorum.voters_before(snapshot_id.offset)
    opening = snapshot_opening(1, voters, version, snapshot_id.epoch, 1000)
    content = build_batch([Record(3, 1, None, encode_record(topic))], leader_epoch=snapshot_id.epoch)
    node.log.write_snapshot(snapshot_id, bytes(opening + content + snapshot_closing(4, snapshot_id.epoch, 1000)))
    node.log.close()
    files = [path for path in (tmp_path / DIRECTORY).iterdir() if path.suffix in (".log", ".checkpoint")]
    tool = java_command("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder")
    printed = {}
    for path in files:
        done = subprocess.run([*tool, "--files", str(path)], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        printed[path.suffix] = done.stdout
    for text in printed.values():
        assert "isvalid: false" not in text
        assert "KRaftVersion" in text
        assert '"kRaftVersion":1' in text
        assert '"voterId":1' in text
        assert '"name":"orders"' in text
    assert "LeaderChange" in printed[".log"]
    assert '"leaderId":1' in printed[".log"]
    assert "SnapshotHeader" in printed[".checkpoint"]
    assert "SnapshotFooter" in printed[".checkpoint"]
