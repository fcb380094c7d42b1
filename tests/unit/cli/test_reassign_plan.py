"""Plans of moves: what must hold of every one, whatever the cluster is like."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.reassign_plan import CannotPlace, Move, Place, Replicas, plan_moves

THREE = {1: None, 2: None, 3: None}


def applied(current: dict[Place, Replicas], moves: list[Move]) -> dict[Place, Replicas]:
    return current | {move.place: move.after for move in moves}


def loads(placed: dict[Place, Replicas]) -> Counter[int]:
    return Counter(node for replicas in placed.values() for node in replicas)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[Place, Replicas], dict[int, str | None]]:
    node_count = draw(st.integers(1, 6))
    with_racks = draw(st.booleans())
    racks = {node: draw(st.sampled_from("abc")) if with_racks else None for node in range(1, node_count + 1)}
    factor = draw(st.integers(1, node_count))
    nodes = st.lists(st.integers(1, node_count), min_size=factor, max_size=factor, unique=True)
    placed = draw(st.lists(nodes, max_size=20))
    return {("t", index): tuple(replicas) for index, replicas in enumerate(placed)}, racks


@settings(deadline=None)
@given(clusters())
def test_a_plan_keeps_factors_and_uses_racks_as_far_as_there_are(
    cluster: tuple[dict[Place, Replicas], dict[int, str | None]],
) -> None:
    current, racks = cluster
    after = applied(current, plan_moves(current, racks))
    rack_count = len(set(racks.values())) if None not in racks.values() else len(racks)
    for place, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(current[place])
        used = {racks[node] or node for node in replicas}
        assert len(used) == min(rack_count, len(replicas))


@settings(deadline=None)
@given(clusters())
def test_a_plan_that_was_carried_out_leaves_nothing_to_move(
    cluster: tuple[dict[Place, Replicas], dict[int, str | None]],
) -> None:
    current, racks = cluster
    after = applied(current, plan_moves(current, racks))
    again = applied(after, plan_moves(after, racks))
    assert {place: set(replicas) for place, replicas in after.items()} == {
        place: set(replicas) for place, replicas in again.items()
    }


@settings(deadline=None)
@given(clusters())
def test_without_racks_nodes_end_up_with_the_same_but_one(
    cluster: tuple[dict[Place, Replicas], dict[int, str | None]],
) -> None:
    current, racks = cluster
    nodes = dict.fromkeys(racks)
    after = loads(applied(current, plan_moves(current, nodes)))
    assert max(after[node] for node in nodes) - min(after[node] for node in nodes) <= 1


@settings(deadline=None)
@given(clusters(), st.data())
def test_a_drained_node_holds_nothing_and_nothing_else_moves(
    cluster: tuple[dict[Place, Replicas], dict[int, str | None]], data: st.DataObject
) -> None:
    current, racks = cluster
    drained = data.draw(st.sampled_from(sorted(racks)))
    left = {node: rack for node, rack in racks.items() if node != drained}
    on_node = [place for place, replicas in current.items() if drained in replicas]
    if any(len(current[place]) > len(left) for place in on_node):
        with pytest.raises(CannotPlace):
            plan_moves(current, left, chosen=on_node, balanced=False)
        return
    moves = plan_moves(current, left, chosen=on_node, balanced=False)
    assert {move.place for move in moves} == set(on_node)
    assert drained not in loads(applied(current, moves))


def test_a_new_node_gets_its_share_by_as_few_moves_as_possible() -> None:
    current: dict[Place, Replicas] = {("t", index): ((index % 3) + 1,) for index in range(12)}
    moves = plan_moves(current, THREE | {4: None})
    assert sum(len(move.arriving) for move in moves) == 3
    assert set(loads(applied(current, moves)).values()) == {3}


def test_more_replicas_keep_those_that_are_there() -> None:
    current = {("t", index): ((index % 3) + 1,) for index in range(6)}
    moves = plan_moves(current, {1: "a", 2: "a", 3: "b", 4: "c"}, replica_count=3)
    for move in moves:
        assert set(move.before) <= set(move.after)
        assert len({"aabc"[node - 1] for node in move.after}) == 3


def test_fewer_replicas_go_where_racks_are_used_twice() -> None:
    (move,) = plan_moves({("t", 0): (1, 2, 3)}, {1: "a", 2: "a", 3: "b"}, replica_count=2)
    assert 3 in move.after


def test_leaders_go_round_without_a_copy() -> None:
    current: dict[Place, Replicas] = {("t", index): (1, 2, 3) for index in range(9)}
    moves = plan_moves(current, THREE)
    assert not any(move.arriving for move in moves)
    assert set(Counter(replicas[0] for replicas in applied(current, moves).values()).values()) == {3}


def test_what_was_not_chosen_stays() -> None:
    current = {("a", 0): (1,), ("b", 0): (1,), ("b", 1): (1,)}
    assert {move.topic for move in plan_moves(current, THREE, chosen=[("b", 0), ("b", 1)])} == {"b"}


def test_more_replicas_than_nodes_cannot_be() -> None:
    with pytest.raises(CannotPlace, match="shall have 4 replicas, and there are 3 nodes"):
        plan_moves({("t", 0): (1,)}, THREE, replica_count=4)
