"""Everything of one run put together: cluster, network, clients, faults, observers; its phases and its end."""

import hashlib
import logging
import random
import traceback

from penstock.protocol.messages import Struct
from tests.simulation.checkers import check_at_the_end, is_settled
from tests.simulation.client import CREATE_TOPICS, SimClient, Unavailable
from tests.simulation.cluster import SimCluster
from tests.simulation.faults import Faults
from tests.simulation.history import History, Violation
from tests.simulation.loop import Scheduler
from tests.simulation.network import Network
from tests.simulation.observer import Observer
from tests.simulation.workload_admin import Administrator
from tests.simulation.workload_classic import ClassicMember
from tests.simulation.workload_epochs import LateComer
from tests.simulation.workload_groups import Member, Ownership
from tests.simulation.workload_produce import Producer, Reader, Stop
from tests.simulation.workload_topics import Recreator, Trimmer
from tests.simulation.workload_transactions import TransactionalProducer
from tests.simulation.workload_voters import VoterChanger

_COMPACTION = {"cleanup.policy": "compact", "internal.segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.1"}
# Partitions and settings.
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {"internal.segment.bytes": "20000"}),
    "unsafe": (1, {}),
    "compacted": (1, _COMPACTION),
    "transactions": (2, {}),
    "retained": (1, {"retention.bytes": "3000", "internal.segment.bytes": "1500"}),
}
# How likely a run has each: a topic with its producers and readers, or more work on one.
_WORKS = {
    "plain": 0.8,
    "unsafe": 0.4,
    "compacted": 0.4,
    "transactions": 0.7,
    "retained": 0.3,
    "recreated": 0.3,
    "group": 0.5,
    "classic": 0.4,
    "late": 0.4,
    "reassign": 0.4,
    "configs": 0.3,
}

_ISR_MIN_LIKELIHOOD = 0.12
_VOTERS_LIKELIHOOD = 0.1
_PIPELINING_LIKELIHOOD = 0.4

Worker = Producer | TransactionalProducer | Member | LateComer | Administrator | Recreator | Trimmer | VoterChanger


class _LoggedDefects(logging.Handler):
    """What a request met and must not break anything else, production catches and logs with its exception."""

    def __init__(self, defects: list[tuple[str, str]]) -> None:
        super().__init__(logging.ERROR)
        self._defects = defects

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            story = "".join(traceback.format_exception(record.exc_info[1]))
            self._defects.append((record.name, f"{record.getMessage()}: {story}"))


class SimulatedWorld:
    def __init__(self, seed: int, notes: list[str]) -> None:
        self.scheduler = Scheduler(seed)
        self._logged_defects = _LoggedDefects(self.scheduler.defects)
        logging.getLogger("penstock").addHandler(self._logged_defects)
        self.network = Network(self.scheduler)
        self._notes = notes
        chance = self.scheduler.random
        self.is_synced = chance.random() < 0.4
        settings = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "replica.lag.time.max.ms": str(chance.choice((1500, 5000))),
            "broker.session.timeout.ms": str(chance.choice((3000, 9000))),
            "replica.socket.timeout.ms": "3000",
            # What is new wakes whoever waits for it. Long waits cost nothing, but for a follower whose leader is gone.
            "replica.fetch.wait.max.ms": str(chance.choice((500, 1500, 2500))),
            "controller.quorum.retry.backoff.ms": str(chance.choice((20, 100, 200))),
            "log.flush.mode": "ack" if self.is_synced else "auto",
            "metadata.log.max.record.bytes.between.snapshots": str(chance.choice((1500, 6000, 1 << 20))),
            "slow.request.log.ms": "1000000000",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.heartbeat.interval.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": str(chance.choice((0, 500))),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": "3000",
            "log.cleaner.backoff.ms": "3000",
        }
        nodes = chance.choice((3, 3, 3, 4, 5))
        # By a random source of its own, so that other runs do not change.
        changes_voters = random.Random(f"voters {seed}").random() < _VOTERS_LIKELIHOOD
        self.cluster = SimCluster(
            self.scheduler,
            self.network,
            nodes=nodes,
            settings=settings,
            changes_voters=changes_voters,
            note=self.note,
        )
        self.history = History()
        self.history.compacted_topics.add("compacted")
        self.history.trimmed_topics.add("retained")
        self.faults = Faults(self.cluster, self.network, is_synced=self.is_synced, note=self.note)
        self.observer = Observer(self.cluster, self.history, is_synced=self.is_synced)
        # Each run has its own mixture of work, as of mishaps: what is alone in one is in the way of others elsewhere.
        self.works = [work for work, likelihood in _WORKS.items() if chance.random() < likelihood]
        self._topics = {topic: _TOPICS[topic] for topic in _TOPICS if topic in self.works or topic == "plain"}
        self.note(f"work: {', '.join(self.works)}")
        self.producers_stop = Stop()
        # Of changes to the quorum, which are faults of a kind: a new controller gives nodes that were killed another
        # session, and until that has ended they cannot come back.
        self.voters_stop = Stop()
        self.readers_stop = Stop()
        self.producers: list[Worker] = []
        self.administrator: Administrator | None = None
        self.voter_changer: VoterChanger | None = None
        self.readers: list[Reader] = []

    def note(self, what: str) -> None:
        self._notes.append(f"{self.scheduler.now_s:8.3f} {what}")

    # Phases

    def run(self, *, ready_s_max: float, fault_s: float, converge_s_max: float, observe_s: float) -> None:
        self.note(f"{len(self.cluster.hosts)} nodes, {'synced' if self.is_synced else 'in memory'}")
        self.cluster.start()
        if not self._until(lambda: self.cluster.is_ready, ready_s_max, observe_s):
            raise Violation(0, "liveness", f"no cluster after {ready_s_max} s")
        if self.cluster.changes_voters:
            self._form_quorum(ready_s_max, observe_s)
        self._create_topics()
        self._start_clients()
        self._until(lambda: False, 1.0, observe_s)
        self.faults.begin()
        self._until(lambda: False, fault_s, observe_s)
        self.faults.heal()
        self.voters_stop.is_set = True
        if not self._until(self._is_healed, converge_s_max, observe_s):
            why_not = self.observer.why_not_healed() or "what has rotted is not put right"
            raise Violation(0, "liveness", f"{converge_s_max} s after the last fault: {why_not}")
        self.note("all replicas in sync")
        self.producers_stop.is_set = True
        if not self._until(lambda: all(one.is_done for one in self.producers), converge_s_max, observe_s):
            raise Violation(0, "liveness", "producers do not come to an end")
        if not self._until(lambda: is_settled(self), converge_s_max, observe_s):
            raise Violation(0, "liveness", "readers do not come to the end, or transactions stay open")
        self.note("settled")
        self.readers_stop.is_set = True
        check_at_the_end(self)

    def _until(self, is_done, seconds_max: float, step_s: float) -> bool:  # type: ignore[no-untyped-def]
        def look() -> bool:
            self.observer.look()
            self._raise_defects()
            return bool(is_done())

        return self.scheduler.run_until(look, seconds_max, step_s)

    def _is_healed(self) -> bool:
        self.faults.keep_healed()
        return self.observer.is_healed() and self.faults.rot.host is None

    def _raise_defects(self) -> None:
        for process, problem in self.scheduler.defects:
            if "Violation" in problem:
                text = problem.rpartition("Violation: ")[2].strip()
                number = int(text.partition("invariant ")[2].partition(" ")[0])
                violation = Violation(number, "", "")
                violation.args = (text,)
                raise violation
            raise Violation(0, "no defects", f"{process}: {problem}")

    # Clients

    def _form_quorum(self, seconds_max: float, observe_s: float) -> None:
        changer = self.voter_changer = VoterChanger(self.cluster, self.voters_stop, "voters")
        self.producers.append(changer)
        if not self._until(lambda: changer.is_formed, seconds_max, observe_s):
            raise Violation(0, "liveness", "no quorum could be formed")

    def _create_topics(self) -> None:
        client = SimClient(self.cluster, "admin")
        made: list[bool] = []
        topics = [(name, partitions, configs) for name, (partitions, configs) in self._topics.items()]
        body = Struct(
            topics=[
                Struct(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=3,
                    assignments=[],
                    configs=[Struct(name=key, value=value) for key, value in configs.items()],
                )
                for name, partitions, configs in topics
            ],
            timeout=5000,
            validate_only=False,
        )

        async def create() -> None:
            while not made:
                try:
                    answer = await client.ask_any(CREATE_TOPICS, body)
                except Unavailable:
                    continue
                if all(topic.error_code in (0, 36) for topic in answer.topics):
                    made.append(True)
                await client.pause()

        client.run(create)
        if not self.scheduler.run_until(lambda: bool(made), 20):
            raise Violation(0, "liveness", "topics could not be made")

    def _start_clients(self) -> None:
        args = (self.cluster, self.history, self.producers_stop)
        chance = self.scheduler.random
        # By a random source of its own, so that other runs do not change.
        pipelines = random.Random(f"in flight {self.scheduler.seed}").random() < _PIPELINING_LIKELIHOOD
        in_flight_max = 5 if pipelines else 1
        for number in range(2 if "plain" in self.works else 1):
            self.producers.append(Producer(*args, f"safe{number}", "plain", 2, acks=-1, in_flight_max=in_flight_max))
        if "unsafe" in self.works:
            self.producers.append(Producer(*args, "unsafe0", "unsafe", 1, acks=1, in_flight_max=in_flight_max))
        if "compacted" in self.works:
            self.producers.append(Producer(*args, "compact0", "compacted", 1, acks=-1))
        for name, source in (("tx0", None), ("tx1", "plain")) if "transactions" in self.works else ():
            self.producers.append(
                TransactionalProducer(
                    *args, name, topic="transactions", partitions=2, is_new=chance.random() < 0.6, source=source
                )
            )
        owned = Ownership()
        for number in range(2 if "group" in self.works else 0):
            self.producers.append(Member(*args, f"member{number}", "plain", "readers", owned))
        owned_by_classic = Ownership()
        for number in range(2 if "classic" in self.works else 0):
            self.producers.append(
                ClassicMember(*args, f"classic{number}", "plain", "classic readers", owned_by_classic)
            )
        if "retained" in self.works:
            self.producers.append(Producer(*args, "retained0", "retained", 1, acks=-1))
            if chance.random() < 0.5:
                self.producers.append(Trimmer(*args, "trimmer", ("retained", 0)))
        if "recreated" in self.works:
            self.producers.append(Recreator(self.cluster, self.producers_stop, "recreator", "fleeting"))
        keys = [(topic, index) for topic, (partitions, _) in self._topics.items() for index in range(partitions)]
        isr_mins = self._isr_mins()
        if "reassign" in self.works or "configs" in self.works or isr_mins:
            self.administrator = Administrator(
                self.cluster, self.producers_stop, "operator", keys, self.works, isr_mins
            )
            self.producers.append(self.administrator)
        if "late" in self.works:
            self.producers.append(LateComer(self.cluster, self.producers_stop, "late", keys))
        for topic, (partitions, _) in self._topics.items():
            for index in range(partitions):
                for is_committed in (False, True) if topic == "transactions" else (False,):
                    name = f"reader-{topic}-{index}" + ("-committed" if is_committed else "")
                    key = (topic, index)
                    self.readers.append(
                        Reader(self.cluster, self.history, self.readers_stop, name, key, is_committed=is_committed)
                    )

    def _isr_mins(self) -> tuple[str, ...]:
        """What min.insync.replicas becomes while others work, in some of the runs; by a random source of its own, so
        that the others do not change. Where one replica may lose what it had in memory, it is not enough alone; nor
        where it may rot."""
        if self.faults.rot.is_on or random.Random(f"isr {self.scheduler.seed}").random() >= _ISR_MIN_LIKELIHOOD:
            return ()
        return ("2", "3") if self.faults.loses_memory else ("1", "2", "3")

    # The end

    def facts(self) -> dict[str, int]:
        return {
            "acked": self.history.acknowledged,
            "read": self.history.reads,
            **{name.replace(" ", "_"): count for name, count in self.faults.counts.items()},
            **({"rot": self.faults.rot.count} if self.faults.rot.count else {}),
        }

    def trace(self) -> str:
        """Of everything that was delivered, and of what the disks hold in the end."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(f"{self.network.trace} {self.scheduler.callbacks} {self.network.chunks_delivered}".encode())
        for host in self.cluster.hosts.values():
            for path, data in host.disk.dump().items():
                digest.update(path.encode() + data)
        return digest.hexdigest()

    def end(self) -> None:
        logging.getLogger("penstock").removeHandler(self._logged_defects)
        self.faults.close()
        self.observer.close()
        for host in self.cluster.hosts.values():
            if host.loop is not None:
                host.loop.kill()
        for one in (*self.producers, *self.readers):
            one.client.loop.kill()
