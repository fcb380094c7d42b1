"""The decision log: which micro-batches of a sink are committed, in a compacted topic of its own.

A micro-batch is written by several transactions, which end one after the other. What makes them one is a record here:
once it says "decided", every one of them will be committed, by this driver or by the next; before that, none is. "done"
says that they have been.

Decisions are written under the transactional id of the sink itself. A driver that begins takes that id over, so the
driver before it, should it still be running, cannot decide anything any more.
"""

import json
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.arrow_columns import schema_of
from penstock.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from penstock.client.connection import CREATE_TOPICS, code_of
from penstock.client.errors import Refusal
from penstock.client.fetching import FetchLimits
from penstock.client.producing import Producer, ProducerId, Section
from penstock.client.reading import read_slice
from penstock.client.transactions import Transactions
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, encode_records

TOPIC = "__penstock_spark_commits"
_PARTITION = TopicPartition(TOPIC, 0)
_FORMAT = 1
# The last decision of a sink that is at work is near the end; further back is looked for in growing steps.
_LOOK_BACK_RECORDS = 200


class TaskTransaction(NamedTuple):
    transactional_id: str
    producer: ProducerId


class Decision(NamedTuple):
    query_id: str
    batch_id: int
    is_done: bool
    transactions: tuple[TaskTransaction, ...]

    def encoded(self) -> bytes:
        return json.dumps(
            {
                "format": _FORMAT,
                "query": self.query_id,
                "batch": self.batch_id,
                "state": "done" if self.is_done else "decided",
                "transactions": [[each.transactional_id, *each.producer] for each in self.transactions],
            }
        ).encode()


def decoded(value: bytes) -> Decision:
    tree = json.loads(value)
    if tree["format"] != _FORMAT:
        raise ValueError(f"{TOPIC} was written by a later version (format {tree['format']}): update penstock")
    transactions = tuple(TaskTransaction(each[0], ProducerId(each[1], each[2])) for each in tree["transactions"])
    return Decision(tree["query"], tree["batch"], tree["state"] == "done", transactions)


class DecisionLog:
    def __init__(self, cluster: Cluster, transactions: Transactions, sink_id: str) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._sink_id = sink_id

    def take_over(self) -> ProducerId:
        """From now on no other driver of this sink decides."""
        return self._transactions.begin(self._sink_id, is_two_phase=False)

    def write(self, decision: Decision, driver: ProducerId) -> ProducerId:
        """Returns when it is durable, with what the driver goes on as. Raises Refusal if another driver took over."""
        record = Record(0, 0, self._sink_id.encode(), decision.encoded())
        producer = Producer(self._cluster, producer_id=driver, transactional_id=self._sink_id)
        try:
            producer.send({_PARTITION: Section(bytes(encode_records([record], 0, 0)), 1)})
            producer.flush()
        finally:
            producer.close()
        return self._transactions.end(self._sink_id, driver, commits=True)

    def last(self) -> Decision | None:
        """The sink's last decision."""
        bounds = {
            place: self._cluster.list_offsets({_PARTITION: place}, read_committed=True)[_PARTITION]
            for place in (EARLIEST, LATEST)
        }
        first, end = bounds[EARLIEST], bounds[LATEST]
        step = _LOOK_BACK_RECORDS
        while end > first:
            start = max(first, end - step)
            found = self._last_between(start, end)
            if found is not None:
                return found
            end = start
            step *= 4
        return None

    def _last_between(self, start: int, end: int) -> Decision | None:
        key = self._sink_id.encode()
        found = None
        limits = FetchLimits(read_committed=True, wait_ms_max=100)
        for batch in read_slice(self._cluster, _PARTITION, start, end, schema_of(["key", "value"]), limits):
            for each_key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                if each_key == key and value is not None:
                    found = value
        return None if found is None else decoded(found)

    def make_topic(self) -> None:
        """If it is not there. Its records are small and few; compaction keeps the last of each sink."""
        if TOPIC in self._cluster.topics([TOPIC]):
            return

        def attempt() -> None:
            self._cluster.refresh([])
            controller = self._cluster.nodes.get(self._cluster.controller_id)
            topic = Struct(
                name=TOPIC,
                num_partitions=1,
                replication_factor=-1,
                assignments=[],
                configs=[Struct(name="cleanup.policy", value="compact")],
            )
            body = Struct(topics=[topic], timeout=30_000, validate_only=False)
            if controller is None:
                answer = self._cluster.ask_any(CREATE_TOPICS, body)
            else:
                answer = self._cluster.ask(controller, CREATE_TOPICS, body)
            code = code_of(answer.topics[0].error_code)
            if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise Refusal(code, f"creating topic {TOPIC}", answer.topics[0].error_message)

        self._cluster.patiently(attempt, f"creating topic {TOPIC}")
