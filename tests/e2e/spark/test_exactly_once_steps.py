"""The steps of the exactly-once sink, without Spark: drivers and tasks die at any request; what is read then?"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import penstock.arrow
from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import ClientError, Refusal
from penstock.client.producing import ProducerId
from penstock.client.transactions import Transactions
from penstock.pipeline.spark.decisions import Decision, DecisionLog
from penstock.pipeline.spark.exactly_once import Attempt, CannotBeExactlyOnce, ExactlyOnceSink, Prepared
from penstock.pipeline.spark.sink_options import SinkOptions, sink_options
from tests.conftest import MakeBroker
from tests.e2e.node import Node
from tests.e2e.spark import crashing

SCHEMA = StructType([StructField("value", BinaryType())])
TASKS = 3


class Killed(BaseException):
    """As kill -9: nothing that is left to do is done."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("exactly-once") / "data", "-X", "transaction.two.phase.commit.enable=true")
    node.start()
    yield node
    node.close()


class Job:
    """A streaming query as Spark would run it: micro-batches in order, each until it is committed."""

    def __init__(self, node: Node, name: str, kind: type[ExactlyOnceSink] = ExactlyOnceSink) -> None:
        self._kind = kind
        self.topic = name
        self.bootstrap = node.bootstrap
        given = {"kafka.bootstrap.servers": node.bootstrap, "topic": name, "exactlyOnce": "true", "sinkId": name}
        self.options: SinkOptions = sink_options(given, SCHEMA)
        self.query_id = f"query-{name}"
        self.next_batch = 0

    @contextmanager
    def sink(self) -> Iterator[ExactlyOnceSink]:
        with Cluster(self.options.client) as cluster:
            yield self._kind(self.options, cluster)

    def plan(self) -> tuple[ProducerId, Decision | None]:
        with self.sink() as sink:
            return sink.prepare()

    def write(self, driver: ProducerId, last: Decision | None, task: int, attempt: int = 0) -> Prepared:
        rows = [pa.record_batch({"value": pa.array([value], pa.binary())}) for value in self.rows_of(task)]
        with self.sink() as sink:
            return sink.write(Attempt(self.query_id, self.next_batch, task, attempt), driver, last, iter(rows))

    def rows_of(self, task: int) -> list[bytes]:
        # The last task has nothing to write.
        return [] if task == TASKS - 1 else [f"{self.next_batch}/{task}/{row}".encode() for row in range(2)]

    def commit(self, messages: list[Prepared]) -> None:
        with self.sink() as sink:
            sink.commit(messages, self.next_batch)
        self.next_batch += 1

    def run_batch(self) -> None:
        driver, last = self.plan()
        self.commit([self.write(driver, last, task) for task in range(TASKS)])

    def expected(self) -> list[str]:
        return sorted(f"{b}/{t}/{r}" for b in range(self.next_batch) for t in range(TASKS - 1) for r in range(2))

    def committed(self) -> list[str]:
        table = penstock.arrow.read(self.topic, bootstrap_servers=self.bootstrap, columns=["value"])
        return sorted(value.decode() for value in table["value"].to_pylist())

    def left_open(self) -> list[str]:
        with Cluster(self.options.client) as cluster:
            return [each for each in Transactions(cluster).ongoing() if each.startswith(self.options.sink_id or "?")]


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, node: Node, request: int, *, is_sent: bool) -> Iterator[None]:
    """Dies at the n-th request, before or after it was sent. What is asked of other nodes does not count: brokers of
    other tests may run in this process, and their consoles ask all the time."""
    count = itertools.count()
    send = Connection.send

    def send_or_die(self: Connection, *arguments: Any) -> None:
        is_last = self.address[1] == node.port and next(count) == request
        if is_last and not is_sent:
            raise Killed
        send(self, *arguments)
        if is_last:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "send", send_or_die)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "before it is answered"])
def test_rows_are_there_once_whichever_request_the_process_dies_at(
    node: Node, topic_name: str, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """Before prepare, between prepares, around the decision, between commits, before it is done: each request once."""
    job = Job(node, topic_name)
    job.run_batch()
    died = 0
    for request in itertools.count():
        try:
            with dying_at(monkeypatch, node, request, is_sent=is_sent):
                job.run_batch()
        except Killed:
            died += 1
            # The checkpoint has the micro-batch as begun: the next driver runs it again.
            job.run_batch()
        else:
            break
    assert died > 20
    assert job.committed() == job.expected()
    assert job.left_open() == []


@pytest.mark.slow
def test_rows_are_there_once_at_whichever_step_the_broker_is_killed(
    tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch goes on, or fails and is run again: as the client's patience has it."""
    node = Node(tmp_path / "data", "-X", "transaction.two.phase.commit.enable=true").start()
    armed: list[str] = []

    def kill_broker(step: str) -> None:
        if armed == [step]:
            armed.clear()
            node.kill9()
            node.start()

    monkeypatch.setattr(crashing, "reach", kill_broker)
    try:
        job = Job(node, topic_name, crashing.CrashingSink)
        job.run_batch()
        for step in crashing.STEPS:
            armed.append(step)
            try:
                job.run_batch()
            except ClientError:
                job.run_batch()
            assert not armed, f"nobody came to the step '{step}'"
            assert job.committed() == job.expected(), step
        assert job.left_open() == []
    finally:
        node.close()


def test_a_failed_commit_is_finished_by_the_abort_if_it_was_decided(
    node: Node, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(node, topic_name)
    driver, last = job.plan()
    messages = [job.write(driver, last, task) for task in range(TASKS)]

    def fail(*_: Any, **__: Any) -> None:
        raise Refusal(ErrorCode.request_timed_out, "a broken network")

    with monkeypatch.context() as patch, job.sink() as sink:
        patch.setattr(ExactlyOnceSink, "_finish", fail)
        with pytest.raises(Refusal):
            sink.commit(messages, 0)
    with job.sink() as sink:
        sink.abort(messages, 0)
    # Spark runs the micro-batch again; its tasks find that it is committed.
    driver, last = job.plan()
    again = [job.write(driver, last, task) for task in range(TASKS)]
    assert all(each.is_skipped for each in again)
    job.commit(again)
    assert job.committed() == job.expected()


def test_an_abort_before_the_decision_leaves_nothing(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    driver, last = job.plan()
    messages = [job.write(driver, last, task) for task in range(TASKS)]
    with job.sink() as sink:
        sink.abort(messages, 0)
    assert job.left_open() == []
    assert job.committed() == []
    job.run_batch()
    assert job.committed() == job.expected()


def test_attempts_that_lost_are_swept(node: Node, topic_name: str) -> None:
    """A speculative copy or a failed attempt may have prepared too: it neither ends the winner's nor stays."""
    job = Job(node, topic_name)
    driver, last = job.plan()
    messages = [job.write(driver, last, task) for task in range(TASKS)]
    job.write(driver, last, 0, attempt=1)
    job.commit(messages)
    assert job.committed() == job.expected()
    assert job.left_open() == []


def test_fewer_partitions_after_a_crash_leave_no_orphans(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    driver, last = job.plan()
    job.write(driver, last, 1)
    driver, last = job.plan()
    assert job.left_open() == []
    job.commit([job.write(driver, last, 0)])
    assert job.committed() == ["0/0/0", "0/0/1"]


def test_a_driver_that_was_replaced_decides_nothing_and_aborts_nothing(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    old_driver, old_last = job.plan()
    old = [job.write(old_driver, old_last, task) for task in range(TASKS)]
    new_driver, new_last = job.plan()
    with job.sink() as sink, pytest.raises(Refusal):
        sink.commit(old, 0)
    new = [job.write(new_driver, new_last, task) for task in range(TASKS)]
    with job.sink() as sink:
        sink.abort(old, 0)
    with pytest.raises(CannotBeExactlyOnce, match="too late"):
        job.write(old_driver, old_last, 0, attempt=3)
    job.commit(new)
    assert job.committed() == job.expected()


def test_a_decided_transaction_that_somebody_aborted_stops_the_sink(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    driver, last = job.plan()
    messages = [job.write(driver, last, task) for task in range(TASKS)]
    assert messages[0].transaction is not None
    with Cluster(job.options.client) as cluster:
        Transactions(cluster).begin(messages[0].transaction.transactional_id, is_two_phase=True)
    with pytest.raises(CannotBeExactlyOnce, match="somebody else"):
        job.commit(messages)
    with pytest.raises(CannotBeExactlyOnce, match="somebody else"):
        job.plan()


def test_a_sink_id_belongs_to_one_query(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    job.run_batch()
    other = Job(node, topic_name)
    other.query_id = "another"
    driver, last = other.plan()
    with pytest.raises(CannotBeExactlyOnce, match="belongs to another query"):
        other.write(driver, last, 0)


def test_the_last_decision_is_found_among_those_of_other_sinks(node: Node, topic_name: str) -> None:
    names = [f"{topic_name}-a", f"{topic_name}-b"]
    with Cluster(Job(node, topic_name).options.client) as cluster:
        logs = [DecisionLog(cluster, Transactions(cluster), name) for name in names]
        logs[0].make_topic()
        assert [log.last() for log in logs] == [None, None]
        logs[0].write(Decision("q", 7, True, ()), logs[0].take_over())
        driver = logs[1].take_over()
        for batch_id in range(150):
            driver = logs[1].write(Decision("q", batch_id, True, ()), driver)
        found = [log.last() for log in logs]
    assert [each.batch_id for each in found if each is not None] == [7, 149]


def test_a_broker_that_does_not_allow_two_phases_is_named(make_broker: MakeBroker, topic_name: str) -> None:
    job = Job(make_broker(), topic_name)
    driver, last = job.plan()
    with pytest.raises(Refusal, match=r"transaction\.two\.phase\.commit\.enable=true"):
        job.write(driver, last, 0)


def test_readers_of_committed_data_see_nothing_before_the_decision(node: Node, topic_name: str) -> None:
    job = Job(node, topic_name)
    driver, last = job.plan()
    messages = [job.write(driver, last, task) for task in range(TASKS)]
    assert job.committed() == []
    job.commit(messages)
    assert job.committed() == job.expected()
