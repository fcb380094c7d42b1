"""The checker can fail: a good history passes, and each kind of violation, planted into it, is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log.compaction_records import unpack, with_horizon
from penstock.protocol.batch import read_header
from tests.e2e.faults.checker import KINDS, SENT_ANEW, check
from tests.e2e.faults.history import Event, Recorder, read_history
from tests.e2e.faults.nodes import content_of
from tests.unit.log.made import NOW_MS, make_batch, make_marker

ALL, COMMITTED = "read_uncommitted", "read_committed"


def event(what: str, /, t: float = 1.0, **fields: Any) -> Event:
    return {"t": t, "e": what, **fields}


def reading(reader: str, isolation: str, tp: str, values: dict[int, str], **fields: Any) -> list[Event]:
    return [
        event("start", r=reader, iso=isolation, tp=tp, o=0, **fields),
        event("poll", r=reader, tp=tp, o=list(values), v=list(values.values())),
    ]


# What the topics hold: two plain records of each of two writers; a committed and an aborted transaction over two
# partitions, with markers between; copies of all plain records.
PLAIN = {0: "a:0", 1: "a:1", 2: "b:0", 3: "b:1"}
LEDGER_0 = {0: "w:0:0", 2: "w:1:0"}
LEDGER_1 = {0: "w:0:1", 2: "w:1:1"}
COPIES = {0: "0:0", 1: "0:1", 3: "0:2", 4: "0:3"}


def good_history() -> list[Event]:
    history = [
        event("topic", name="plain", kind="plain", source=None),
        event("topic", name="ledger", kind="transactional", source=None),
        event("topic", name="copies", kind="copies", source="plain"),
        event("sent", w="a", tp="plain-0", s=[0, 1]),
        event("sent", w="b", tp="plain-0", s=[0, 1]),
        event("acked", w="a", tp="plain-0", s=[0, 1], o=[0, 1]),
        event("acked", w="b", tp="plain-0", s=[0, 1], o=[2, 3]),
        event("placed", w="w", n=0, tp="ledger-0", s=[0], o=[0]),
        event("placed", w="w", n=0, tp="ledger-1", s=[1], o=[0]),
        event("txn", w="w", n=0, of=[["ledger-0", 0], ["ledger-1", 1]], out="committed"),
        event("txn", w="w", n=1, of=[["ledger-0", 0], ["ledger-1", 1]], out="aborted"),
        *reading("follower", ALL, "plain-0", {0: "a:0", 1: "a:1"}),
        *reading("member", COMMITTED, "plain-0", PLAIN, g="group"),
        event("commit", t=2.0, g="group", tp="plain-0", o=2),
        event("committed", t=3.1, g="group", tp="plain-0", o=2, began=3.0),
        event("commit", t=4.0, g="group", tp="plain-0", o=4),
        event("fault", kind="kill", aim="leader", node=1),
        event("converged", ms=1200),
        event("replicas", differ=[]),
    ]
    for tp, everything, committed in (
        ("plain-0", PLAIN, PLAIN),
        ("ledger-0", LEDGER_0, {0: "w:0:0"}),
        ("ledger-1", LEDGER_1, {0: "w:0:1"}),
        ("copies-0", COPIES, COPIES),
    ):
        history += reading("final-all", ALL, tp, everything)
        history += reading("final-committed", COMMITTED, tp, committed)
        history += [event("whole", r="final-all", tp=tp), event("whole", r="final-committed", tp=tp)]
    return history


def final_polls(history: list[Event], tp: str, *readers: str) -> list[Event]:
    return [one for one in history if one["e"] == "poll" and one["tp"] == tp and one["r"] in readers]


def drop(history: list[Event], tp: str, offset: int, *readers: str) -> None:
    for poll in final_polls(history, tp, *readers):
        index = poll["o"].index(offset)
        del poll["o"][index], poll["v"][index]


def put(history: list[Event], tp: str, offset: int, value: str, *readers: str) -> None:
    for poll in final_polls(history, tp, *readers):
        poll["o"].append(offset)
        poll["v"].append(value)


BOTH = ("final-all", "final-committed")


def lose_a_record(history: list[Event]) -> None:
    drop(history, "plain-0", 1, *BOTH)


def lose_a_transaction(history: list[Event]) -> None:
    drop(history, "ledger-0", 0, "final-committed")
    drop(history, "ledger-1", 0, "final-committed")


def lose_what_was_read(history: list[Event]) -> None:
    history[:0] = [event("topic", name="plain", kind="plain")]
    history += reading("early", ALL, "plain-0", {0: "a:0", 1: "a:1", 2: "b:0", 3: "b:1", 4: "a:2"})


def lose_what_has_no_offset(history: list[Event]) -> None:
    history.append(event("acked", w="c", tp="plain-0", s=[0], o=[None]))


def double_a_record(history: list[Event]) -> None:
    put(history, "plain-0", 4, "b:1", *BOTH)


def double_a_record_of_one_batch(history: list[Event]) -> None:
    double_a_record(history)
    history.append(event("batches", tp="plain-0", of=[[0, 1, 0, 0], [2, 2, 0, 0], [4, 2, 0, 0]]))


def swap_two(history: list[Event]) -> None:
    history[:] = [one for one in history if one.get("tp") != "plain-0" or one["e"] == "sent"]
    values = {0: "a:1", 1: "a:0", 2: "b:0", 3: "b:1"}
    for reader, isolation in zip(BOTH, (ALL, COMMITTED), strict=True):
        history += [*reading(reader, isolation, "plain-0", values), event("whole", r=reader, tp="plain-0")]


def tell_two_readers_different_things(history: list[Event]) -> None:
    history += reading("other", ALL, "plain-0", {0: "a:0", 1: "b:0"})


def acknowledge_another_record(history: list[Event]) -> None:
    history.append(event("acked", w="c", tp="plain-0", s=[0], o=[3]))


def invent_a_record(history: list[Event]) -> None:
    put(history, "plain-0", 4, "a:9", *BOTH)


def show_an_aborted_record(history: list[Event]) -> None:
    history += reading("hasty", COMMITTED, "ledger-1", {0: "w:0:1", 2: "w:1:1"})


def commit_one_half(history: list[Event]) -> None:
    drop(history, "ledger-1", 0, "final-committed")


def commit_one_half_of_one_whose_end_is_unknown(history: list[Event]) -> None:
    for one in history:
        if one["e"] == "txn" and one["n"] == 0:
            one["out"] = "unknown"
    drop(history, "ledger-1", 0, "final-committed")


def poll_backwards(history: list[Event]) -> None:
    history += reading("confused", ALL, "plain-0", {0: "a:0", 2: "b:0", 1: "a:1"})


def skip_one(history: list[Event]) -> None:
    history += reading("blind", ALL, "plain-0", {0: "a:0", 2: "b:0"})


def forget_a_commit(history: list[Event]) -> None:
    history.append(event("committed", t=5.1, g="group", tp="plain-0", o=2, began=5.0))


def skip_one_in_the_group(history: list[Event]) -> None:
    drop(history, "plain-0", 2, "member")


def lose_a_copy(history: list[Event]) -> None:
    drop(history, "copies-0", 3, *BOTH)


def double_a_copy(history: list[Event]) -> None:
    put(history, "copies-0", 5, "0:3", *BOTH)


PLANTED: list[tuple[str, Callable[[list[Event]], None]]] = [
    ("lost", lose_a_record),
    ("lost", lose_a_transaction),
    ("lost", lose_what_was_read),
    ("lost", lose_what_has_no_offset),
    ("duplicated", double_a_record),
    ("duplicated", double_a_record_of_one_batch),
    ("reordered", swap_two),
    ("inconsistent offset", tell_two_readers_different_things),
    ("inconsistent offset", acknowledge_another_record),
    ("never sent", invent_a_record),
    ("aborted read", show_an_aborted_record),
    ("not atomic", commit_one_half),
    ("not atomic", commit_one_half_of_one_whose_end_is_unknown),
    ("poll out of order", poll_backwards),
    ("skipped by a reader", skip_one),
    ("commit went back", forget_a_commit),
    ("skipped by a group", skip_one_in_the_group),
    ("copy lost", lose_a_copy),
    ("copy duplicated", double_a_copy),
    ("stuck", lambda history: history.append(event("stuck", what="plain-0", after_ms=120_000))),
    ("slow to converge", lambda history: history.append(event("converged", ms=30_001))),
    ("replicas differ", lambda history: history.append(event("replicas", differ=["plain-0"]))),
    ("defect", lambda history: history.append(event("defect", node=1, what="Traceback"))),
    ("not read to the end", lambda history: history.remove(event("whole", r="final-all", tp="plain-0"))),
]


def test_a_good_history_is_good_and_was_looked_at() -> None:
    verdict = check(good_history())
    assert verdict.is_good, verdict.details
    assert verdict.seen["acknowledged"] == 6
    assert verdict.seen["kill of a leader"] == 1
    assert verdict.convergence_ms == [1200]


@pytest.mark.parametrize(("kind", "plant"), PLANTED, ids=lambda one: getattr(one, "__name__", one))
def test_a_planted_violation_is_found(kind: str, plant: Callable[[list[Event]], None]) -> None:
    history = good_history()
    plant(history)
    assert check(history).counts[kind] > 0


def test_every_kind_of_violation_is_planted() -> None:
    assert {kind for kind, _ in PLANTED} == set(KINDS)


def test_what_a_client_was_not_told_may_be_there_or_not() -> None:
    history = [
        *good_history(),
        event("sent", w="c", tp="plain-0", s=[0, 4]),
        event("failed", w="c", tp="plain-0", s=[0, 1, 2, 3, 4], why="timed out"),
        event("txn", w="w", n=2, of=[["ledger-0", 0], ["ledger-1", 1]], out="unknown"),
    ]
    assert check(history).is_good


def test_an_acknowledgement_may_come_without_an_offset() -> None:
    history = good_history()
    history[5]["o"] = [None, None]
    assert check(history).is_good


def test_what_a_client_sends_anew_under_a_new_epoch_is_counted_apart() -> None:
    history = good_history()
    put(history, "plain-0", 4, "b:0", *BOTH)
    put(history, "plain-0", 5, "b:1", *BOTH)
    history.append(event("batches", tp="plain-0", of=[[0, 1, 0, 0], [2, 2, 0, 0], [4, 2, 1, 0]]))
    verdict = check(history)
    # Of the copies they have none.
    assert verdict.counts.keys() == {"copy lost"}, verdict.details
    assert verdict.seen[SENT_ANEW] == 2


def test_a_recorded_history_is_read_back_as_it_was(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history.jsonl")
    recorder.write("acked", w="a", tp="plain-0", s=[0, 1], o=[5, 6])
    recorder.close()
    (found,) = read_history(recorder.path)
    assert {key: found[key] for key in ("e", "w", "s", "o")} == {"e": "acked", "w": "a", "s": [0, 1], "o": [5, 6]}
    assert recorder.acknowledged_by_partition() == {"plain-0": 2}


def test_replicas_that_were_compacted_at_different_times_are_the_same_and_others_are_not() -> None:
    marker, other = make_marker(7, 0, abort=False), make_marker(7, 0, abort=True)
    early, late, aborting = (
        bytes(make_batch() + with_horizon(read_header(batch), unpack(batch, read_header(batch)), NOW_MS + later_ms))
        for batch, later_ms in ((marker, 1000), (marker, 100_000), (other, 1000))
    )
    assert early != late
    assert content_of(early) == content_of(late) == content_of(bytes(make_batch() + marker))
    assert content_of(early) != content_of(aborting)
