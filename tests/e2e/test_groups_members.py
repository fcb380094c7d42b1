"""Members killed and stopped under load, and the broker under them, again and again: no record is skipped, and what is
read twice had not been committed before."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.confluent import create
from tests.conformance.group_clients import PROTOCOLS, eager_node
from tests.e2e.groups import (
    QUICK_SESSIONS,
    Feed,
    MemberProcess,
    check_delivery,
    committed_offsets,
    wait_for_progress,
    wait_until_all_is_committed,
)
from tests.e2e.node import Node, wait_until

ROUNDS = 50
ROUNDS_EVERY_DAY = 15
RESTARTS = 5
PARTITIONS = 6
MEMBERS = 3
TOPIC = "watched"
GROUP = "watchers"


class Company:
    """The group under test: as many members as there should be, and those that are no more."""

    def __init__(self, node: Node, directory: Path, protocol: str) -> None:
        self.node = node
        self.all: list[MemberProcess] = []
        self.alive: list[MemberProcess] = []
        self._directory = directory
        self._protocol = protocol

    def add(self) -> MemberProcess:
        member = MemberProcess(self.node, self._directory, self._protocol, GROUP, TOPIC, len(self.all))
        self.all.append(member)
        self.alive.append(member)
        return member

    def at_work(self) -> list[MemberProcess]:
        """At least two members that have partitions now."""
        since_ns = time.monotonic_ns()
        found: list[MemberProcess] = []

        def are_at_work() -> bool:
            found[:] = [member for member in self.alive if member.has_committed_since(since_ns)]
            return len(found) > 1

        wait_until(are_at_work, "two members have partitions")
        return found

    def wait_for_progress(self) -> None:
        wait_for_progress(self.node, GROUP, TOPIC, PARTITIONS, self.all)

    def close(self) -> None:
        for member in self.alive:
            member.close()


@contextmanager
def under_load(directory: Path, protocol: str) -> Iterator[Company]:
    """Checks at the end that everything was read as it should have been."""
    node = eager_node(directory / "data", **QUICK_SESSIONS).start()
    create(node, TOPIC, PARTITIONS)
    company = Company(node, directory, protocol)
    feed = Feed(node, TOPIC, PARTITIONS)
    try:
        for _ in range(MEMBERS):
            company.add()
        feed.start()
        company.wait_for_progress()
        yield company
        count = feed.finish()
        wait_until_all_is_committed(node, GROUP, TOPIC, PARTITIONS, count)
        company.close()
        check_delivery(company.all, PARTITIONS, count)
    finally:
        company.close()
        if not node.is_running:
            node.start()
        node.close()


@pytest.mark.slow
@pytest.mark.timeout(280)
# A member that wakes up has records in its hands that others have committed since. It cannot commit them: it is no
# member any more, and joins again only when its program has heard, by asking for more, that its partitions are lost.
# (Once it has joined it may commit whatever it likes, here as in Kafka: see the differential cases of groups.) A commit
# that went back nonetheless was seen once, in the new protocol; should it happen again, the journals are shown.
@pytest.mark.parametrize(
    ("protocol", "rounds"),
    [
        ("classic", ROUNDS),
        ("consumer", ROUNDS_EVERY_DAY),
        pytest.param("consumer", ROUNDS, marks=pytest.mark.long),
    ],
)
def test_nothing_is_skipped_when_members_are_killed_and_stopped(tmp_path: Path, protocol: str, rounds: int) -> None:
    chance = random.Random(f"members {protocol}")
    with under_load(tmp_path, protocol) as company:
        for _ in range(rounds):
            victim = chance.choice(company.at_work())
            if chance.random() < 0.5:
                victim.kill9()
                company.alive.remove(victim)
                company.add()
                company.wait_for_progress()
            else:
                # Longer than its session: others take over what it has. Then it wakes up and knows nothing of that.
                victim.signal(signal.SIGSTOP)
                company.wait_for_progress()
                victim.signal(signal.SIGCONT)


def _kill(node: Node) -> None:
    node.kill9()


def _stop(node: Node) -> None:
    node.stop()


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("end", [_kill, _stop], ids=["kill -9", "clean"])
def test_a_group_goes_on_when_the_broker_restarts_in_the_middle_of_a_rebalance(
    tmp_path: Path, protocol: str, end: Callable[[Node], None]
) -> None:
    chance = random.Random(f"broker {protocol}")
    with under_load(tmp_path, protocol) as company:
        node = company.node
        for _ in range(RESTARTS):
            # Somebody comes or goes; the broker ends a moment later, anywhere in the rebalance that follows.
            if len(company.alive) < MEMBERS:
                newcomer = company.add()
                wait_until(newcomer.journal.exists, "the newcomer is at work")
            else:
                leaving = company.alive.pop(0)
                leaving.signal(signal.SIGTERM)
                if chance.random() < 0.5:
                    leaving.close()
            moment = chance.randint(0, 30)
            polls = iter(range(moment))
            wait_until(lambda polls=polls: next(polls, None) is None, "a moment has passed")  # type: ignore[misc]
            before = committed_offsets(node, GROUP, TOPIC, PARTITIONS)
            end(node)
            node.start()
            after = committed_offsets(node, GROUP, TOPIC, PARTITIONS)
            assert all(new >= old for old, new in zip(before, after, strict=True)), f"lost commits: {before} {after}"
            company.wait_for_progress()
        for member in company.all:
            if member not in company.alive:
                member.close()
