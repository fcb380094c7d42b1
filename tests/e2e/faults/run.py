"""Carries a plan out: a cluster for each stage, clients at work, one fault after the other, and a history of it all.

python -m tests.e2e.faults.run MINUTES [SEED]
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.client.cluster import ClientConfig, Cluster
from penstock.client.errors import ClientError
from penstock.client.groups import committed_offsets
from tests.e2e.cluster.nodes import NODE_IDS
from tests.e2e.faults import report
from tests.e2e.faults.checker import Verdict, check
from tests.e2e.faults.history import Recorder, read_history
from tests.e2e.faults.nodes import FaultyCluster, producers_in, wait_for
from tests.e2e.faults.plan import FULL, KILL, POWER, RESTART, Fault, Stage, Step, make_plan
from tests.e2e.faults.readers import Follower, GroupMember, read_to_the_end
from tests.e2e.faults.workload import Client, Copier, PlainWriter, TransactionalWriter

PLAIN, LEDGER, COPIES = "plain", "ledger", "copies"
TOPICS = {PLAIN: 6, LEDGER: 4, COPIES: 4}
GROUPS = {"classic-group": "classic", "consumer-group": "consumer"}
COPY_GROUP = "copy-group"
_GIVE_UP_SECONDS = 120.0
_RATE_PER_S = 300
_SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


class StageRun:
    def __init__(self, stage: Stage, directory: Path, say: Callable[[str], None]) -> None:
        self.stage = stage
        self.say = say
        directory.mkdir(parents=True, exist_ok=True)
        self.recorder = Recorder(directory / f"{stage.name}.jsonl")
        self._home = tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True)
        self.cluster = FaultyCluster(Path(self._home.name), {**_SETTINGS, **stage.settings})
        self.clients: list[Client] = []

    def run(self) -> Path:
        try:
            self.cluster.start()
            self._make_topics()
            self._start_clients()
            self._converge("start")
            self._break_things()
            self._wind_down()
        finally:
            for client in self.clients:
                client.ended.set()
            self.cluster.close()
            for node_id in NODE_IDS:
                kept = self.recorder.path.with_name(f"{self.stage.name}-node-{node_id}.log")
                kept.write_text(self.cluster.log(node_id))
            self.recorder.close()
            self._home.cleanup()
        return self.recorder.path

    def _make_topics(self) -> None:
        for name, partitions in TOPICS.items():
            # Small segments: rolls are among what is interrupted.
            self.cluster.create_topic(name, partitions, internal_segment_bytes="1000000")
        for name, kind in ((PLAIN, "plain"), (LEDGER, "transactional"), (COPIES, "copies")):
            self.recorder.write("topic", name=name, kind=kind, source=PLAIN if kind == "copies" else None)

    def _start_clients(self) -> None:
        where, recorder = self.cluster.bootstrap, self.recorder
        life_s = max(10.0, self.stage.seconds / 30)
        self.clients = [
            *(PlainWriter(f"plain{i}", where, recorder, PLAIN, TOPICS[PLAIN], _RATE_PER_S) for i in range(2)),
            *(TransactionalWriter(f"ledger{i}", where, recorder, LEDGER, TOPICS[LEDGER], i) for i in range(2)),
            *(Copier(f"copier{i}", where, recorder, PLAIN, COPIES, TOPICS[COPIES], COPY_GROUP) for i in range(2)),
            *(
                GroupMember(f"{group}-{i}", where, recorder, PLAIN, group, protocol)
                for group, protocol in GROUPS.items()
                for i in range(2)
            ),
            Follower("follower-all", where, recorder, TOPICS, "read_uncommitted", life_s),
            Follower("follower-committed", where, recorder, TOPICS, "read_committed", life_s),
        ]
        for client in self.clients:
            client.start()

    # Faults

    def _break_things(self) -> None:
        steps = self.stage.steps
        start_s = time.monotonic()
        for index, step in enumerate(steps):
            due_s = start_s + index * self.stage.seconds / len(steps)
            time.sleep(max(0.0, due_s - time.monotonic()))
            if step.fault.kind == FULL and not self.cluster.has_own_disks:
                self.say("full disk: left out, since no tmpfs can be mounted here")
                continue
            self._break(step)
            self._converge(step.fault.kind)
            for node_id, what in self.cluster.new_defects():
                self.recorder.write("defect", node=node_id, what=what)
        time.sleep(max(0.0, start_s + self.stage.seconds - time.monotonic()))

    def _break(self, step: Step) -> None:
        fault = step.fault
        target, aim = self._target(fault)
        self.recorder.write("fault", kind=fault.kind, aim=aim, node=target, shape=fault.shape)
        whom = "" if fault.kind in (POWER, RESTART) else f" of {target} ({fault.shape or fault.aim})"
        self.say(f"{self.recorder.now_s:7.1f} s  {fault.kind}{whom}, {fault.seconds} s")
        match fault.kind:
            case "kill":
                self.cluster.kill9(target)
            case "pause":
                self.cluster.pause(target)
            case "partition":
                self.cluster.cut(target, fault.shape)
            case "full disk":
                self.cluster.fill_disk(target)
            case "power cut":
                lost = self.cluster.cut_power(random.Random(fault.chance))
                self.say(f"{'':11}{lost} unsynced bytes are gone")
            case "restart of all":
                self.cluster.stop()
        if step.meanwhile is not None:
            time.sleep(fault.seconds / 2)
            self._kill_and_start(step.meanwhile, busy=target)
            time.sleep(fault.seconds / 2)
        else:
            time.sleep(fault.seconds)
        self._mend(fault, target)
        self.recorder.write("over", kind=fault.kind)

    def _kill_and_start(self, fault: Fault, busy: int) -> None:
        target, aim = self._target(fault, not_this=busy)
        self.recorder.write("fault", kind=KILL, aim=aim, node=target, shape="")
        self.say(f"{self.recorder.now_s:7.1f} s  kill of {target} ({fault.aim}) meanwhile")
        self.cluster.kill9(target)
        time.sleep(min(fault.seconds, 2.0))
        self.cluster.spawn(target)
        self.recorder.write("over", kind=KILL)

    def _mend(self, fault: Fault, target: int) -> None:
        match fault.kind:
            case "kill":
                self.cluster.spawn(target)
            case "pause":
                self.cluster.resume(target)
            case "partition":
                self.cluster.proxy.mend()
            case "full disk":
                self.cluster.empty_disk(target)
            case _:
                for node_id in NODE_IDS:
                    self.cluster.spawn(node_id)

    def _target(self, fault: Fault, not_this: int = 0) -> tuple[int, str]:
        """A node, and what it was hit as: any, where the one aimed at cannot be told or is broken already."""
        chance = random.Random(fault.chance)
        nodes = [node_id for node_id in self.cluster.answering() if node_id != not_this]
        found = -1
        try:
            if fault.aim == "controller":
                found = self.cluster.controller()
            elif fault.aim == "coordinator":
                key = chance.choice(["ledger0", "copier0"])
                found = self.cluster.transaction_coordinator(key)
            elif fault.aim == "leader":
                leaders = [view.leader for views in self.cluster.views().values() for view in views.values()]
                found = chance.choice(leaders) if leaders else -1
        except (AssertionError, OSError):
            found = -1
        return (found, fault.aim) if found in nodes else (chance.choice(nodes), "any")

    # Healing

    def _converge(self, after: str) -> None:
        """Everything is in sync, every partition takes writes, what was open in transactions is decided."""
        start_s = time.monotonic()
        acknowledged = self.recorder.acknowledged_by_partition()
        marks: dict[str, int] = {}
        problems: list[str] = []

        def is_well() -> bool:
            found = self._problems(acknowledged, marks)
            problems[:] = found or problems
            return not found

        for node_id in NODE_IDS:
            self._await_ready(node_id)
        if wait_for(is_well, _GIVE_UP_SECONDS):
            elapsed_ms = int((time.monotonic() - start_s) * 1000)
            self.recorder.write("converged", ms=elapsed_ms, after=after, last=problems[:5])
            self.say(f"{'':11}well again after {elapsed_ms} ms; last: {', '.join(problems[:2]) or 'nothing'}")
        else:
            self.recorder.write("stuck", what=f"after {after}: {problems[:5]}", after_ms=int(_GIVE_UP_SECONDS * 1000))
            self.say(f"{'':11}STUCK: {problems[:5]}")

    def _await_ready(self, node_id: int) -> None:
        try:
            self.cluster.await_ready(node_id)
        except Exception as problem:
            self.recorder.write("defect", node=node_id, what=f"did not start: {problem}")
            raise

    def _problems(self, acknowledged: dict[str, int], marks: dict[str, int]) -> list[str]:
        views = self.cluster.views()
        problems = [f"node {node_id} does not answer" for node_id, view in views.items() if not view]
        leaders: dict[str, set[int]] = {}
        for node_id, view in views.items():
            for tp, one in view.items():
                leaders.setdefault(tp, set()).add(one.leader)
                if one.isr != one.replicas:
                    problems.append(f"{tp} in sync {sorted(one.isr)} by {node_id}")
        problems += [f"{tp} led by {found}" for tp, found in leaders.items() if len(found) > 1 or -1 in found]
        if problems:
            return problems
        now = self.recorder.acknowledged_by_partition()
        for topic in (PLAIN, LEDGER):
            for index in range(TOPICS[topic]):
                tp = f"{topic}-{index}"
                if now.get(tp, 0) <= acknowledged.get(tp, 0):
                    problems.append(f"nothing acknowledged in {tp}")
        marks.update(self.cluster.ends(TOPICS, 0) if not marks else {})
        stable = self.cluster.ends(TOPICS, 1)
        problems += [
            f"{tp} stable to {stable.get(tp)} of {mark}" for tp, mark in marks.items() if stable.get(tp, -1) < mark
        ]
        return problems

    # The end

    def _wind_down(self) -> None:
        writers: list[Client] = [one for one in self.clients if isinstance(one, PlainWriter | TransactionalWriter)]
        others = [client for client in self.clients if client not in writers]
        for client in writers:
            client.ended.set()
        for client in writers:
            client.finish()
        if not wait_for(self._is_drained, _GIVE_UP_SECONDS):
            self.recorder.write("stuck", what=f"groups do not come to the end: {self._lags()}", after_ms=120_000)
        for client in others:
            client.ended.set()
        for client in others:
            client.finish()
        ends: dict[str, int] = {}

        def are_stable() -> bool:
            ends.update(self.cluster.ends(TOPICS, 0))
            return len(ends) == sum(TOPICS.values()) and self.cluster.ends(TOPICS, 1) == ends

        if not wait_for(are_stable, 60):
            self.recorder.write(
                "stuck", what=f"the last stable offset: {self.cluster.ends(TOPICS, 1)} of {ends}", after_ms=60_000
            )
        for isolation in ("read_uncommitted", "read_committed"):
            read_to_the_end(self.cluster.bootstrap, self.recorder, TOPICS, isolation, ends, 300)
        self.cluster.stop()
        self.recorder.write("replicas", differ=self.cluster.differing_replicas())
        for index in range(TOPICS[PLAIN]):
            batches = producers_in(self.cluster.stored(NODE_IDS[0], f"{PLAIN}-{index}"))
            self.recorder.write("batches", tp=f"{PLAIN}-{index}", of=batches)
        for node_id, what in self.cluster.new_defects():
            self.recorder.write("defect", node=node_id, what=what)

    def _is_drained(self) -> bool:
        lags = self._lags()
        return bool(lags) and not any(lags.values())

    def _lags(self) -> dict[str, int]:
        ends = self.cluster.ends({PLAIN: TOPICS[PLAIN]}, 1)
        lags = {}
        config = ClientConfig(self.cluster.bootstrap, patience_ms=10_000)
        for group in (*GROUPS, COPY_GROUP):
            try:
                with Cluster(config) as asked:
                    committed = {
                        f"{topic}-{index}": at for (topic, index), at in committed_offsets(asked, group).items()
                    }
            except ClientError:
                return {}
            for tp, end in ends.items():
                lags[f"{group} {tp}"] = end - committed.get(tp, 0)
        return lags


def run_stage(stage: Stage, directory: Path, say: Callable[[str], None]) -> Verdict:
    return check(read_history(StageRun(stage, directory, say).run()))


def run(minutes: float, seed: int, directory: Path, say: Callable[[str], None]) -> list[tuple[Stage, Path, Verdict]]:
    outcomes = []
    for stage in make_plan(seed, minutes):
        say(f"{stage.name}: {len(stage.steps)} steps in {stage.seconds:.0f} s")
        verdict = run_stage(stage, directory, say)
        outcomes.append((stage, directory / f"{stage.name}.jsonl", verdict))
    return outcomes


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    threading.excepthook = threading.__excepthook__
    return report.show(minutes, seed, lambda directory, say: run(minutes, seed, directory, say))


if __name__ == "__main__":
    sys.exit(main())
