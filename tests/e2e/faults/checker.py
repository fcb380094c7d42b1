"""Says what is wrong with a history, knowing nothing but that history.

Two complete readings at the end, one of everything and one of what is committed, are what all others are compared with.
What a client was not told for certain (a timeout, a fatal error) may have happened or not, but not by half.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.e2e.faults.history import Event

KINDS = (
    "lost",
    "duplicated",
    "reordered",
    "inconsistent offset",
    "never sent",
    "aborted read",
    "not atomic",
    "poll out of order",
    "skipped by a reader",
    "commit went back",
    "skipped by a group",
    "copy lost",
    "copy duplicated",
    "stuck",
    "slow to converge",
    "replicas differ",
    "defect",
    "not read to the end",
)
CONVERGENCE_MS_MAX = 30_000
# No violation, since no broker can know: librdkafka sends what it has not heard of again under a new epoch, in all
# partitions, once a broker refuses a batch whose predecessor has not arrived.
SENT_ANEW = "sent anew under a new epoch"
_DETAILS_MAX = 20
_LARGEST = 1 << 62
_COMMITTED, _ALL = "read_committed", "read_uncommitted"


@dataclass
class Verdict:
    counts: Counter[str] = field(default_factory=Counter)
    # The first few of each kind, for people.
    details: dict[str, list[str]] = field(default_factory=dict)
    # Of what was looked at: a check that saw nothing proves nothing.
    seen: Counter[str] = field(default_factory=Counter)
    convergence_ms: list[int] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.counts

    def add(self, kind: str, detail: str) -> None:
        assert kind in KINDS, kind
        self.counts[kind] += 1
        if self.counts[kind] <= _DETAILS_MAX:
            self.details.setdefault(kind, []).append(detail)


@dataclass
class _Session:
    """One reader on one partition, from one start on."""

    reader: str
    isolation: str
    tp: str
    start: int
    group: str | None
    offsets: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass
class _Transaction:
    outcome: str
    records: list[tuple[str, int]]


def check(history: Iterable[Event]) -> Verdict:
    checker = _Checker()
    for event in history:
        handler = getattr(checker, f"on_{event['e']}", None)
        if handler is not None:
            handler(event)
    checker.finish()
    return checker.verdict


def _topic(tp: str) -> str:
    return tp.rpartition("-")[0]


class _Checker:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._topics: dict[str, tuple[str, str | None]] = {}
        # What anybody ever said or saw of an offset.
        self._values: dict[str, dict[int, str]] = defaultdict(dict)
        self._sent: dict[tuple[str, str], int] = {}
        # Base offset, producer id, epoch and base sequence of each batch, as they stand on the disk.
        self._batches: dict[str, list[list[int]]] = {}
        self._acked: dict[str, dict[int, str]] = defaultdict(dict)
        # Those that a client took for acknowledged when a later batch was, without an offset.
        self._acked_somewhere: dict[str, set[str]] = defaultdict(set)
        self._transactions: dict[tuple[str, int], _Transaction] = {}
        self._sessions: list[_Session] = []
        self._current: dict[tuple[str, str], _Session] = {}
        self._whole: dict[tuple[str, str], _Session] = {}
        # Acknowledged commits, in the order of their acknowledgements.
        self._commits: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        # Transactions whose records somebody who reads committed ones saw, and where.
        self._read_committed: dict[tuple[str, int], str] = {}

    # Events

    def on_topic(self, event: Event) -> None:
        self._topics[event["name"]] = event["kind"], event.get("source")

    def on_sent(self, event: Event) -> None:
        self._sent[event["w"], event["tp"]] = event["s"][1]

    def on_acked(self, event: Event) -> None:
        for number, offset in zip(event["s"], event["o"], strict=True):
            self._acknowledge(event["tp"], offset, f"{event['w']}:{number}")

    def on_placed(self, event: Event) -> None:
        for index, offset in zip(event["s"], event["o"], strict=True):
            if offset is not None:
                self._observe(event["tp"], offset, f"{event['w']}:{event['n']}:{index}", "a producer was told")

    def on_txn(self, event: Event) -> None:
        records = [(tp, index) for tp, index in event["of"]]
        self._transactions[event["w"], event["n"]] = _Transaction(event["out"], records)
        self.verdict.seen[f"transactions {event['out']}"] += 1
        if event["out"] == "committed":
            self.verdict.seen["acknowledged"] += len(records)

    def on_start(self, event: Event) -> None:
        session = _Session(event["r"], event["iso"], event["tp"], event["o"], event.get("g"))
        self._sessions.append(session)
        self._current[session.reader, session.tp] = session

    def on_poll(self, event: Event) -> None:
        tp = event["tp"]
        session = self._current[event["r"], tp]
        last = session.offsets[-1] if session.offsets else session.start - 1
        is_transactional = self._topics.get(_topic(tp), ("", None))[0] == "transactional"
        for offset, value in zip(event["o"], event["v"], strict=True):
            if offset <= last:
                self.verdict.add("poll out of order", f"{session.reader} got {tp}@{offset} after {last}")
            last = offset
            session.offsets.append(offset)
            self._observe(tp, offset, value, session.reader)
            if is_transactional and session.isolation == _COMMITTED:
                writer, number, _ = value.split(":")
                self._read_committed.setdefault((writer, int(number)), f"{session.reader} at {tp}@{offset}")
        self.verdict.seen["records read"] += len(event["o"])

    def on_whole(self, event: Event) -> None:
        session = self._current[event["r"], event["tp"]]
        self._whole[event["tp"], session.isolation] = session

    def on_commit(self, event: Event) -> None:
        self._commits[event["g"], event["tp"]].append((event["t"], event["o"]))
        self.verdict.seen["commits"] += 1

    def on_committed(self, event: Event) -> None:
        """What was acknowledged before the question was asked is the least that the answer may be."""
        before = [offset for at, offset in self._commits[event["g"], event["tp"]] if at < event["began"]]
        if before and event["o"] < max(before):
            self.verdict.add(
                "commit went back", f"{event['g']} was told {event['tp']}@{event['o']} after {max(before)}"
            )

    def on_converged(self, event: Event) -> None:
        self.verdict.convergence_ms.append(event["ms"])
        if event["ms"] > CONVERGENCE_MS_MAX:
            self.verdict.add("slow to converge", f"{event['ms']} ms at {event['t']} s")

    def on_stuck(self, event: Event) -> None:
        self.verdict.add("stuck", f"{event['what']} at {event['t']} s")

    def on_defect(self, event: Event) -> None:
        self.verdict.add("defect", f"node {event['node']}: {event['what']}")

    def on_batches(self, event: Event) -> None:
        self._batches[event["tp"]] = event["of"]

    def on_replicas(self, event: Event) -> None:
        for tp in event["differ"]:
            self.verdict.add("replicas differ", tp)

    def on_fault(self, event: Event) -> None:
        self.verdict.seen[event["kind"]] += 1
        if event.get("aim", "any") != "any":
            self.verdict.seen[f"{event['kind']} of a {event['aim']}"] += 1

    def _acknowledge(self, tp: str, offset: int | None, value: str) -> None:
        self.verdict.seen["acknowledged"] += 1
        if offset is None:
            self._acked_somewhere[tp].add(value)
            return
        self._acked[tp][offset] = value
        self._observe(tp, offset, value, "a producer was told")

    def _observe(self, tp: str, offset: int, value: str, who: str) -> None:
        known = self._values[tp].setdefault(offset, value)
        if known != value:
            self.verdict.add("inconsistent offset", f"{tp}@{offset} is {known}, and {value} ({who})")

    # The end

    def finish(self) -> None:
        for tp in sorted(set(self._values) | set(self._acked)):
            if all((tp, isolation) in self._whole for isolation in (_ALL, _COMMITTED)):
                self._check_partition(tp)
            else:
                self.verdict.add("not read to the end", tp)
        self._check_transactions()
        self._check_sessions()
        self._check_groups()
        self._check_copies()

    def _check_partition(self, tp: str) -> None:
        everything, committed = (self._whole[tp, isolation].offsets for isolation in (_ALL, _COMMITTED))
        values = self._values[tp]
        present = set(everything)
        readable = set(committed)
        for offset, value in self._acked[tp].items():
            if offset not in present or offset not in readable:
                self.verdict.add("lost", f"{tp}@{offset} {value}")
        for value in self._acked_somewhere[tp].difference(values[offset] for offset in committed):
            self.verdict.add("lost", f"{value}, somewhere in {tp}")
        kind = self._topics.get(_topic(tp), ("", None))[0]
        if kind == "copies":
            return
        places: dict[str, list[int]] = defaultdict(list)
        for offset in sorted(everything):
            places[values[offset]].append(offset)
        again: set[int] = set()
        for value, offsets in places.items():
            if len(offsets) > 1 and self._are_of_new_epochs(tp, offsets):
                again.update(offsets[1:])
            elif len(offsets) > 1:
                found = ", ".join(self._place(tp, offset) for offset in offsets)
                self.verdict.add("duplicated", f"{value} is {len(offsets)} times in {tp}: {found}")
        if again:
            self.verdict.seen[SENT_ANEW] += len(again)
        self._check_order(tp, [values[offset] for offset in sorted(everything) if offset not in again])

    def _are_of_new_epochs(self, tp: str, offsets: list[int]) -> bool:
        """Whether the client itself took a new epoch each time, which makes another record of the same value."""
        batches = [self._batch(tp, offset) for offset in offsets]
        return all(
            before is not None and after is not None and before[1] == after[1] and before[2] < after[2]
            for before, after in pairwise(batches)
        )

    def _batch(self, tp: str, offset: int) -> list[int] | None:
        batches = self._batches.get(tp, [])
        slot = bisect_right(batches, [offset, _LARGEST]) - 1
        return batches[slot] if slot >= 0 else None

    def _place(self, tp: str, offset: int) -> str:
        batch = self._batch(tp, offset)
        if batch is None:
            return f"@{offset}"
        _, producer_id, epoch, sequence = batch
        return f"@{offset} by producer {producer_id} epoch {epoch} from sequence {sequence} on"

    def _check_order(self, tp: str, values: Iterable[str]) -> None:
        """Each writer's records stand in the order in which it sent them, and are ones that it sent."""
        latest: dict[str, tuple[int, ...]] = {}
        for value in values:
            writer, *numbers = value.split(":")
            number = tuple(map(int, numbers))
            if number < latest.get(writer, (-1,)):
                self.verdict.add("reordered", f"{value} after {latest[writer]} in {tp}")
            latest[writer] = number
            if len(number) == 1:
                is_sent = number[0] <= self._sent.get((writer, tp), -1)
            else:
                transaction = self._transactions.get((writer, number[0]))
                is_sent = transaction is not None and (tp, number[1]) in transaction.records
            if not is_sent:
                self.verdict.add("never sent", f"{value} in {tp}")

    def _check_transactions(self) -> None:
        found: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        for (tp, isolation), session in self._whole.items():
            if isolation == _COMMITTED and self._topics.get(_topic(tp), ("", None))[0] == "transactional":
                for offset in session.offsets:
                    writer, number, index = self._values[tp][offset].split(":")
                    found[writer, int(number)].add((tp, int(index)))
        for identity, transaction in self._transactions.items():
            name = f"{identity[0]}:{identity[1]}"
            expected, seen = set(transaction.records), found.get(identity, set())
            if transaction.outcome == "aborted" and identity in self._read_committed:
                self.verdict.add("aborted read", f"{name} by {self._read_committed[identity]}")
            elif transaction.outcome == "committed" and not seen:
                self.verdict.add("lost", f"the whole of transaction {name}")
            elif transaction.outcome != "aborted" and seen != expected and (seen or identity in self._read_committed):
                self.verdict.add("not atomic", f"{name}: {len(seen)} of {len(expected)} records")

    def _check_sessions(self) -> None:
        """Between its start and the last thing it saw, a reader has seen all that there is to see."""
        whole = {key: array("q", sorted(session.offsets)) for key, session in self._whole.items()}
        for session in self._sessions:
            if not session.offsets or (session.tp, session.isolation) not in whole:
                continue
            offsets = whole[session.tp, session.isolation]
            first, last = bisect_left(offsets, session.start), bisect_right(offsets, session.offsets[-1])
            if offsets[first:last] == session.offsets:
                continue
            expected, seen = set(offsets[first:last]), set(session.offsets)
            for offset in sorted(expected - seen)[:3]:
                self.verdict.add("skipped by a reader", f"{session.tp}@{offset} by {session.reader}")
            for offset in sorted(seen - expected)[:3]:
                self.verdict.add("lost", f"{session.tp}@{offset} was seen by {session.reader}, and is gone")

    def _check_groups(self) -> None:
        seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        for session in self._sessions:
            if session.group is not None:
                seen[session.group, session.tp].update(session.offsets)
        for (group, tp), commits in self._commits.items():
            if (group, tp) not in seen or (tp, _COMMITTED) not in self._whole:
                continue
            end = max(offset for _, offset in commits)
            for offset in self._whole[tp, _COMMITTED].offsets:
                if offset < end and offset not in seen[group, tp]:
                    self.verdict.add("skipped by a group", f"{tp}@{offset} by {group}")

    def _check_copies(self) -> None:
        for topic, (kind, source) in self._topics.items():
            if kind != "copies":
                continue
            copies: Counter[Any] = Counter()
            originals: set[str] = set()
            for (tp, isolation), session in self._whole.items():
                if isolation != _COMMITTED:
                    continue
                if _topic(tp) == topic:
                    copies.update(self._values[tp][offset] for offset in session.offsets)
                elif _topic(tp) == source:
                    partition = tp.rpartition("-")[2]
                    originals.update(f"{partition}:{offset}" for offset in session.offsets)
            self.verdict.seen["copies"] += len(copies)
            for value, count in copies.items():
                if value not in originals:
                    self.verdict.add("never sent", f"{value} in {topic}")
                elif count > 1:
                    self.verdict.add("copy duplicated", f"{value} is {count} times in {topic}")
            for value in originals - copies.keys():
                self.verdict.add("copy lost", f"{source} {value}")
