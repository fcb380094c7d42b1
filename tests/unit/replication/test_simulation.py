"""The simulation keeps every invariant, and would notice if it did not: each planted defect is caught."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.alter_partition import AlteredPartition, IsrProposal
from penstock.cluster.metadata.brokers import Registration
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import PartitionImage
from penstock.cluster.partition.follower import FetchedPartition, FetchPosition
from penstock.cluster.partition.replication import Effect, FollowerState, Leader, ProposeIsr
from tests.unit.replication.replica_node import ReplicaNode
from tests.unit.replication.simulation import Simulation, Violation

STEPS = 500
# Every seed that ever failed.
FAILED_SEEDS = [35, 100, 156]
SEEDS_TO_CATCH_MAX = 500
# Some are rare: the search begins where one is near.
FIRST_SEEDS = {"AcceptingStaleProposals": 230}


@pytest.mark.parametrize("isr_min", [1, 2, 3])
@pytest.mark.parametrize("first_seed", range(1000, 1100, 20))
def test_nothing_acknowledged_is_lost_and_replicas_never_disagree(first_seed: int, isr_min: int) -> None:
    acknowledged = 0
    for seed in range(first_seed, first_seed + 20):
        simulation = Simulation(seed, isr_min)
        simulation.run(STEPS)
        acknowledged += len(simulation.acknowledged)
    # With all three needed, little gets through in such times; but something does.
    assert acknowledged > (50 if isr_min < 3 else 0)


@pytest.mark.parametrize("seed", FAILED_SEEDS)
def test_seeds_that_failed_once_pass(seed: int) -> None:
    Simulation(seed, 1 + seed % 2).run(STEPS)


def test_a_seed_gives_the_same_story_every_time() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run(STEPS)
    second.run(STEPS)
    assert first.trace == second.trace
    assert first.records == second.records


# Planted defects


class TruncatingByHighWatermark(ReplicaNode):
    """As before KIP-101."""

    def become_follower(self, partition: PartitionImage, now_ms: int) -> None:
        self.log.truncate_to(self.high_watermark, now_ms)
        super().become_follower(partition, now_ms)


class ShrinkingWithoutCommit(Leader):
    """Counts the narrower ISR before the controller has agreed."""

    def on_tick(self, now_ms: int) -> list[Effect]:
        effects = super().on_tick(now_ms)
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self._maximal_isr = self.isr = tuple(one for one, _ in effect.new_isr)
        return effects + self._advance(now_ms)


class CommittingBelowMinIsr(Leader):
    """Lets the high watermark advance though those who left stay eligible."""

    @property
    def is_under_min_isr(self) -> bool:
        return False


class JoiningTooEarly(Leader):
    """Lets a follower into the ISR that may lack what an earlier leader had committed."""

    def _may_join(self, follower: FollowerState) -> bool:
        return self._pending is None and follower.log_end_offset >= 0 and self._is_eligible(follower)


class NotLookingForDivergence(ReplicaNode):
    """Appends at the end of whatever the follower has."""

    def serve(self, broker_id: int, broker_epoch: int, asked: FetchPosition, now_ms: int) -> FetchedPartition:
        return super().serve(broker_id, broker_epoch, asked._replace(last_fetched_epoch=-1), now_ms)


class BelievingInCleanShutdowns(Controller):
    """Takes every broker back into ISR and ELR as if it had lost nothing."""

    def register_broker(
        self, registration: Registration, now_ms: int, *, previous_is_gone: bool = False
    ) -> Decision[int]:
        known = self._image.brokers.get(registration.broker_id)
        if known is not None:
            registration = dataclasses.replace(registration, previous_broker_epoch=known.epoch)
        return super().register_broker(registration, now_ms, previous_is_gone=previous_is_gone)


class ElectingAnybody(Controller):
    """Elects a leader from outside ISR and ELR where nobody else is there."""

    def topic_settings(self, name: str) -> Any:
        return {**super().topic_settings(name), "unclean.leader.election.enable": True}


class AcceptingStaleProposals(Controller):
    """Lets a leader of an old epoch change the ISR, of members of any incarnation."""

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> Decision[list[AlteredPartition]]:
        believed = []
        for proposal in proposals:
            partition = self._image.topics_by_id[proposal.topic_id].partitions[proposal.partition_index]
            members = [(one, -1) for one, _ in proposal.new_isr]
            if partition.leader >= 0 and partition.leader not in dict(members):
                members.append((partition.leader, -1))
            believed.append(
                dataclasses.replace(
                    proposal,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr=members,
                )
            )
            broker_id = partition.leader
        if broker_id < 0:
            return Decision([AlteredPartition(one.topic_id, 0, ErrorCode.invalid_request) for one in proposals])
        return super().alter_partitions(broker_id, self._image.brokers[broker_id].epoch, believed)


@pytest.mark.parametrize(
    ("defect", "invariants"),
    [
        (TruncatingByHighWatermark, "8"),
        (ShrinkingWithoutCommit, "126"),
        (CommittingBelowMinIsr, "126"),
        (JoiningTooEarly, "1268"),
        (NotLookingForDivergence, "1236"),
        (BelievingInCleanShutdowns, "67"),
        (ElectingAnybody, "1268"),
        (AcceptingStaleProposals, "1268"),
    ],
)
def test_a_planted_defect_is_caught(defect: type, invariants: str) -> None:
    seeds = range(FIRST_SEEDS.get(defect.__name__, 0), SEEDS_TO_CATCH_MAX)
    found = next(filter(None, (_violation(defect, seed) for seed in seeds)), "none")
    assert found[0] in invariants, found


def _violation(defect: type, seed: int) -> str | None:
    try:
        _with_defect(defect, seed).run(STEPS)
    except Violation as violation:
        return str(violation)
    return None


def _with_defect(defect: type, seed: int) -> Simulation:
    kind: dict[str, Any] = {}
    if issubclass(defect, ReplicaNode):
        kind = {"node_class": defect}
    elif issubclass(defect, Leader):
        kind = {"node_class": type("DefectiveNode", (ReplicaNode,), {"leader_class": defect})}
    else:
        kind = {"controller_class": defect}
    simulation: Simulation = type("DefectiveSimulation", (Simulation,), kind)(seed, 1 + seed % 2)
    return simulation
