"""The transaction coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what describes and
lists transactions. Nothing is written to partitions; markers go to them all the same."""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cluster import Cluster, versions_of
from tests.conformance.normalise import plain
from tests.e2e.node import wait_until

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 10, 22, 24, 25, 26
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
# Kafka offers no version 6 unless it is told to offer unstable versions.
INIT_VERSION_MAX = 5
FROM_BROKERS_FROM = 4
# What passes: Kafka answers so while it writes markers, fetches producer ids, or reads its log.
PASSING = frozenset({"concurrent_transactions", "coordinator_load_in_progress", "not_coordinator"})

Pair = tuple[int, int]


class Transactions:
    """Transactional ids of one broker. Producer ids are told as P1, P2, ... in the order in which they were given."""

    def __init__(self, cluster: Cluster, case: str) -> None:
        self.cluster = cluster
        self.topic = f"topic-of-{case}"
        self._case = case
        self._names: dict[int, str] = {}

    def prepare(self) -> None:
        asked = Struct(key="t", key_type=1, coordinator_keys=["t"])

        def is_found() -> bool:
            (answer,) = self.cluster.ask_raw(FIND_COORDINATOR, 4, asked).coordinators
            return bool(answer.error_code == 0)

        wait_until(is_found, "there is a coordinator")
        self.cluster.topic(self.topic, 3)

    def id_of(self, name: str) -> str:
        return f"{self._case}-{name}" if name else ""

    def ask(self, api_key: int, version: int, body: Struct) -> Any:
        """The answer made comparable, once it is not one that passes."""
        answers: list[Any] = []

        def is_answered() -> bool:
            raw = self.cluster.ask_raw(api_key, version, body)
            answers.append(self._told(plain(raw, {}), raw))
            return not PASSING & set(_errors(answers[-1]))

        wait_until(is_answered, "there is an answer that stays")
        return answers[-1]

    def _told(self, told: Any, raw: Any) -> Any:
        for name in ("producer_id",):
            if hasattr(raw, name) and getattr(raw, name) >= 0:
                told[name] = self._names.setdefault(getattr(raw, name), f"P{len(self._names) + 1}")
        return told

    # Requests

    def init(self, name: str, version: int = INIT_VERSION_MAX, **fields: Any) -> Any:
        asked = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1, **fields}
        return self.ask(INIT_PRODUCER_ID, version, Struct(transactional_id=self.id_of(name), **asked))

    def producer(self, name: str) -> Pair:
        """A new producer, with the numbers as they are."""
        self.init(name)
        (state,) = self.cluster.ask_raw(
            DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=[self.id_of(name)])
        ).transaction_states
        return state.producer_id, state.producer_epoch

    def add(self, name: str, pair: Pair, partitions: Iterable[int], version: int = 3, **fields: Any) -> Any:
        topics = fields.get("topics", [Struct(name=self.topic, partitions=list(partitions))])
        one = Struct(
            transactional_id=self.id_of(name),
            producer_id=pair[0],
            producer_epoch=pair[1],
            verify_only=fields.get("verify_only", False),
            topics=topics,
        )
        body = Struct(
            transactions=[one],
            v3_and_below_transactional_id=self.id_of(name),
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=topics,
        )
        return self.ask(ADD_PARTITIONS, version, body)

    def add_offsets(self, name: str, pair: Pair, version: int, group_id: str = "a-group") -> Any:
        body = Struct(transactional_id=self.id_of(name), producer_id=pair[0], producer_epoch=pair[1], group_id=group_id)
        return self.ask(ADD_OFFSETS, version, body)

    def end(self, name: str, pair: Pair, commit: bool, version: int) -> Any:
        body = Struct(transactional_id=self.id_of(name), producer_id=pair[0], producer_epoch=pair[1], committed=commit)
        return self.ask(END_TXN, version, body)

    def describe(self, *names: str) -> Any:
        answer = self.ask(DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=[self.id_of(name) for name in names]))
        for state in answer["transaction_states"]:
            for topic in state["topics"]:
                topic["partitions"].sort()
            if state["transaction_start_time"] is not None:
                state["transaction_start_time"] = "a time"
        return answer

    def settle(self, name: str) -> Any:
        """The description, once no end is under way."""
        described: list[Any] = []

        def is_settled() -> bool:
            described.append(self.describe(name))
            return not described[-1]["transaction_states"][0]["transaction_state"].startswith("Prepare")

        wait_until(is_settled, "no end is under way")
        return described[-1]


def _errors(answer: Any) -> Iterable[str]:
    """The names of all errors in an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value if isinstance(value, str) else value.name
            yield from _errors(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from _errors(item)


TransactionCase = Callable[[Transactions], Any]
TRANSACTION_CASES: dict[str, TransactionCase] = {}


def transaction_case(function: TransactionCase) -> TransactionCase:
    assert function.__name__ not in TRANSACTION_CASES
    TRANSACTION_CASES[function.__name__] = function
    return function


@transaction_case
def init_in_every_version(transactions: Transactions) -> Any:
    return [
        [transactions.init("a", version), transactions.init("a", version), transactions.init(f"b{version}", version)]
        for version in range(INIT_VERSION_MAX + 1)
    ]


@transaction_case
def init_with_bad_input(transactions: Transactions) -> Any:
    return [
        [
            transactions.init("", version),
            transactions.init("a", version, transaction_timeout=0),
            transactions.init("a", version, transaction_timeout=-1),
            transactions.init("a", version, transaction_timeout=900_000),
            transactions.init("a", version, transaction_timeout=900_001),
            transactions.init("a", version, producer_id=5),
            transactions.init("a", version, producer_epoch=5),
            transactions.describe("a"),
        ]
        for version in range(INIT_VERSION_MAX + 1)
    ]


@transaction_case
def init_by_a_producer_that_goes_on(transactions: Transactions) -> Any:
    answers = []
    for version in range(3, INIT_VERSION_MAX + 1):
        name = f"v{version}"
        producer_id, epoch = transactions.producer(name)
        claims = [
            (producer_id, epoch),
            (producer_id, epoch),
            (producer_id, epoch + 1),
            (producer_id, epoch),
            (producer_id, epoch + 5),
            (producer_id + 1_000_000, epoch),
            (producer_id, 32766),
        ]
        answers.append(
            [transactions.init(name, version, producer_id=one, producer_epoch=at) for one, at in claims]
            + [transactions.init(name, version), transactions.init(name, version, producer_id=7, producer_epoch=0)]
        )
        answers.append([transactions.init(f"new{version}", version, producer_id=7, producer_epoch=3)])
    return answers


@transaction_case
def add_partitions_in_every_version(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(ADD_PARTITIONS):
        name = f"v{version}"
        producer_id, epoch = pair = transactions.producer(name)
        there = Struct(name=transactions.topic, partitions=[0, 1])
        gone = Struct(name="no-such-topic", partitions=[0])
        beyond = Struct(name=transactions.topic, partitions=[0, 3, -1])
        answers += [
            transactions.add(name, (producer_id, epoch + 1), [0], version),
            transactions.add(name, (producer_id, epoch - 1), [0], version),
            transactions.add(name, (producer_id + 1_000_000, epoch), [0], version),
            transactions.add("unknown", pair, [0], version),
            transactions.add("", pair, [0], version),
            transactions.add(name, pair, [], version, topics=[there, gone]),
            transactions.add(name, pair, [], version, topics=[beyond]),
            transactions.add(name, pair, [], version, topics=[gone]),
            transactions.describe(name),
            transactions.add(name, pair, [0], version),
            transactions.add(name, pair, [0], version),
            transactions.add(name, pair, [2, 1], version),
            transactions.describe(name),
        ]
    return answers


@transaction_case
def no_partitions_at_all(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(ADD_PARTITIONS):
        name = f"v{version}"
        pair = transactions.producer(name)
        answers += [transactions.add(name, pair, [], version, topics=[]), transactions.describe(name)]
    return answers


@transaction_case
def partitions_are_verified(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(ADD_PARTITIONS)[FROM_BROKERS_FROM:]:
        name = f"v{version}"
        producer_id, epoch = pair = transactions.producer(name)
        answers.append(transactions.add(name, pair, [0], version, verify_only=True))
        transactions.add(name, pair, [0], version)
        answers += [
            transactions.add(name, pair, [0, 1], version, verify_only=True),
            transactions.add(name, (producer_id, epoch + 1), [0], version, verify_only=True),
            transactions.add(name, (producer_id + 1_000_000, epoch), [0], version, verify_only=True),
            transactions.add("unknown", pair, [0], version, verify_only=True),
            transactions.add("", pair, [0], version, verify_only=True),
            transactions.end(name, pair, commit=True, version=4),
            transactions.settle(name),
            transactions.add(name, pair, [0], version, verify_only=True),
        ]
    return answers


@transaction_case
def add_offsets_in_every_version(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(ADD_OFFSETS):
        name = f"v{version}"
        producer_id, epoch = pair = transactions.producer(name)
        answers += [
            transactions.add_offsets(name, (producer_id, epoch + 1), version),
            transactions.add_offsets(name, (producer_id + 1_000_000, epoch), version),
            transactions.add_offsets("unknown", pair, version),
            transactions.add_offsets("", pair, version),
            transactions.add_offsets(name, pair, version),
            transactions.add_offsets(name, pair, version, group_id=""),
            transactions.describe(name),
        ]
    return answers


@transaction_case
def end_in_every_version(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(END_TXN):
        for commit in (True, False):
            name = f"v{version}-{commit}"
            producer_id, epoch = pair = transactions.producer(name)
            transactions.add(name, pair, [0, 2])
            answers += [
                transactions.end(name, (producer_id, epoch + 1), commit, version),
                transactions.end(name, (producer_id, epoch - 1), commit, version),
                transactions.end(name, (producer_id + 1_000_000, epoch), commit, version),
                transactions.end("unknown", pair, commit, version),
                transactions.end("", pair, commit, version),
                transactions.end(name, pair, commit, version),
                transactions.settle(name),
                # Once more, the other outcome, and from older and newer times.
                transactions.end(name, pair, commit, version),
                transactions.end(name, pair, not commit, version),
                transactions.end(name, (producer_id, epoch - 1), commit, version),
                transactions.end(name, (producer_id, epoch + 2), commit, version),
                transactions.settle(name),
            ]
    return answers


@transaction_case
def end_of_what_was_not_begun(transactions: Transactions) -> Any:
    answers = []
    for version in versions_of(END_TXN):
        for commit in (True, False):
            name = f"v{version}-{commit}"
            producer_id, epoch = transactions.producer(name)
            answers += [transactions.end(name, (producer_id, epoch), commit, version), transactions.settle(name)]
            if version == 5 and not commit:
                answers += [
                    transactions.end(name, (producer_id, epoch), commit, version),
                    transactions.end(name, (producer_id, epoch + 1), commit, version),
                    transactions.settle(name),
                    transactions.end(name, (producer_id, epoch + 2), True, version),
                ]
    return answers


@transaction_case
def a_late_end_after_the_next_transaction_began(transactions: Transactions) -> Any:
    answers = []
    for version in (4, 5):
        name = f"v{version}"
        producer_id, epoch = pair = transactions.producer(name)
        transactions.add(name, pair, [0])
        transactions.end(name, pair, commit=True, version=version)
        transactions.settle(name)
        following = (producer_id, epoch + (version == 5))
        answers += [
            transactions.add(name, following, [1]),
            transactions.end(name, pair, False, 5),
            transactions.settle(name),
        ]
    return answers


@transaction_case
def a_new_producer_aborts_what_was_open(transactions: Transactions) -> Any:
    answers = []
    for version in range(INIT_VERSION_MAX + 1):
        name = f"v{version}"
        pair = transactions.producer(name)
        transactions.add(name, pair, [0, 1])
        answers += [
            transactions.init(name, version),
            transactions.describe(name),
            transactions.end(name, pair, True, 5),
            transactions.end(name, pair, True, 1),
            transactions.add(name, pair, [0], 1),
            transactions.add(name, pair, [0], 3),
        ]
    return answers


@transaction_case
def a_transaction_that_takes_too_long(transactions: Transactions) -> Any:
    transactions.init("slow", transaction_timeout=1000)
    pair = transactions.producer("slow")
    transactions.init("slow", transaction_timeout=1000, producer_id=pair[0], producer_epoch=pair[1])
    pair = pair[0], pair[1] + 1
    began = transactions.add("slow", pair, [0])

    def is_aborted() -> bool:
        (state,) = transactions.describe("slow")["transaction_states"]
        return bool(state["transaction_state"] == "CompleteAbort")

    wait_until(is_aborted, "the transaction is aborted")
    return [
        began,
        transactions.describe("slow"),
        transactions.end("slow", pair, True, 5),
        transactions.end("slow", pair, False, 4),
        transactions.add("slow", pair, [0]),
        transactions.init("slow", producer_id=pair[0], producer_epoch=pair[1]),
        transactions.init("slow"),
    ]


@transaction_case
def lists_and_descriptions(transactions: Transactions) -> Any:
    pair = transactions.producer("open")
    transactions.add("open", pair, [0, 1])
    transactions.producer("resting")
    prefix = transactions.id_of("x")[:-1]

    def listed(version: int, **fields: Any) -> Any:
        asked = {"state_filters": [], "producer_id_filters": [], **fields}
        answer = transactions.ask(LIST_TRANSACTIONS, version, Struct(**asked))
        mine = [one for one in answer["transaction_states"] if one["transactional_id"].startswith(prefix)]
        answer["transaction_states"] = sorted(mine, key=lambda one: str(one["transactional_id"]))
        return answer

    return [
        transactions.describe("open", "resting", "unknown", ""),
        transactions.ask(DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=[])),
        [listed(version) for version in versions_of(LIST_TRANSACTIONS)],
        listed(0, state_filters=["Ongoing"]),
        listed(0, state_filters=["Empty", "ongoing", "Nonsense"]),
        listed(0, state_filters=["Dead", "PrepareEpochFence"]),
        listed(0, producer_id_filters=[pair[0], 999_999]),
        listed(1, duration_filter=3_600_000),
        listed(1, duration_filter=0, state_filters=["Ongoing"]),
        listed(2, transactional_id_pattern=f"{prefix}o.*"),
        listed(2, transactional_id_pattern=f"{prefix}o"),
        listed(2, transactional_id_pattern=""),
        listed(2, transactional_id_pattern="("),
    ]


@transaction_case
def find_coordinators_of_transactions(transactions: Transactions) -> Any:
    return [
        transactions.cluster.ask_all_versions(
            FIND_COORDINATOR, Struct(key=key, coordinator_keys=[key, "another"], key_type=1), first=1
        )
        for key in ("some-id", "")
    ]
