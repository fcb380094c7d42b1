"""One broker in one round: the one that most scenarios share, fresh ones for the others, and the clients."""

import contextlib
import json
import os
import random
import re
import shutil
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench import (
    brokers,
    clusters,
    confining,
    group_commits,
    group_members,
    http_load,
    latency,
    pinging,
    processes,
    replay,
    transaction_replay,
    transactions,
    wire,
)
from bench.figures import Sample

TOPIC_PARTITIONS = 4
# Values of 100 and 1,000 bytes such that a batch fills the Java producer's default batch.size of 16 KiB.
BATCH_RECORDS = {100: 150, 1000: 16}
REPLAY_CONNECTIONS = 4
REPLAY_IN_FLIGHT = 5  # the Java producer's default
DEEP_IN_FLIGHT = 20  # librdkafka's default has no bound

_CLIENT_TIMEOUT_S = 180.0
_CLIENT_HEAP = ("-Xmx512M",)  # as Kafka's own start scripts for these two tools
# With that, and even with 1 GB, ProducerPerformance stands still for up to 200 ms at a time to collect garbage: what is
# on its way is copied.
_PRODUCER_JVM = ("-Xms3G", "-Xmx3G", "-Xmn2500M", "-XX:+UseParallelGC", "-XX:+AlwaysPreTouch")
_PRODUCER_HEAP_BYTES = 3 << 30
_PAYLOADS = 1000
_RATE = re.compile(r"records sent, ([0-9.]+) records/sec")


@dataclass(frozen=True)
class Sizes:
    """How much work a measurement is: bytes of record values, requests, seconds, topics."""

    warmup_seconds: int
    tool_bytes: int
    replay_bytes: int
    single_requests: int
    fetch_bytes: int
    latency_seconds: int
    synced_requests: int
    synced_tool_records: int
    many_topics: int
    group_members: int
    group_commits: int
    compaction_bytes: int
    http_records: int
    http_requests: int
    spark_records: int
    cluster_kills: int
    cluster_topics: int


FULL = Sizes(
    warmup_seconds=10,
    tool_bytes=1_200_000_000,
    replay_bytes=800_000_000,
    single_requests=200_000,
    fetch_bytes=6_000_000_000,
    latency_seconds=20,
    synced_requests=40_000,
    synced_tool_records=150_000,
    many_topics=1_000,
    group_members=1_000,
    group_commits=200_000,
    compaction_bytes=1_000_000_000,
    http_records=2_000_000,
    http_requests=30_000,
    spark_records=4_000_000,
    cluster_kills=5,
    cluster_topics=1_000,
)
QUICK = Sizes(
    warmup_seconds=2,
    tool_bytes=40_000_000,
    replay_bytes=80_000_000,
    single_requests=10_000,
    fetch_bytes=400_000_000,
    latency_seconds=2,
    synced_requests=2_000,
    synced_tool_records=5_000,
    many_topics=50,
    group_members=200,
    group_commits=20_000,
    compaction_bytes=250_000_000,
    http_records=200_000,
    http_requests=4_000,
    spark_records=1_000_000,
    cluster_kills=2,
    cluster_topics=100,
)


class CpuSeconds(NamedTuple):
    """So far: of the broker, and of all the clients that have ended."""

    broker: float
    clients: float


class Session:
    def __init__(self, kind: type[brokers.Broker], sizes: Sizes, directory: Path) -> None:
        self.kind = kind
        self.sizes = sizes
        self.directory = directory
        self._warm = directory / "warm"
        self._shared: brokers.Broker | None = None
        self._brokers_made = 0

    def _make(self) -> brokers.Broker:
        self._brokers_made += 1
        broker = self.kind(self.directory / f"broker-{self._brokers_made}")
        broker.prepare()
        return broker

    def shared(self) -> brokers.Broker:
        """The broker that the scenarios of this turn share, so that its memory at the end is "after all that"."""
        if self._shared is None:
            self._shared = self._make()
            self._shared.launch()
            wire.first_acknowledgement(self._shared.port, "first", self._shared.check_running)
            self._warm_up(self._shared)
        return self._shared

    @contextlib.contextmanager
    def fresh(self) -> Iterator[brokers.Broker]:
        """A broker of one's own, prepared but not launched, while no other one runs."""
        self.end_shared()
        broker = self._make()
        try:
            yield broker
        finally:
            broker.kill()
            shutil.rmtree(broker.directory, ignore_errors=True)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[clusters.Cluster]:
        """Three nodes that serve, while no other broker runs."""
        self.end_shared()
        self._brokers_made += 1
        cluster = clusters.CLUSTERS[self.kind](self.directory / f"cluster-{self._brokers_made}")
        try:
            clusters.start(cluster)
            yield cluster
        finally:
            clusters.remove(cluster)

    def end_shared(self) -> None:
        broker, self._shared = self._shared, None
        if broker is not None:
            try:
                broker.stop()
            finally:
                shutil.rmtree(broker.directory, ignore_errors=True)

    def _warm_up(self, broker: brokers.Broker) -> None:
        """Gives Java's compiler the time to do its work, on all the paths that are measured."""
        seconds = self.sizes.warmup_seconds
        wire.make_topic(broker.port, "warmup", TOPIC_PARTITIONS)
        for record_bytes, idempotent in ((100, False), (1000, True)):
            plan = self.produce_plan("warmup", record_bytes, seconds * 20_000_000, idempotent=idempotent)
            self.printed(replay.command(plan))
        self.printed(replay.command(self.single_record_plan("warmup", 100, seconds * 3_000, acks=1)))
        topic = wire.make_topic(broker.port, "warmup-fetch", TOPIC_PARTITIONS)
        self.printed(replay.command(self.produce_plan(topic.name, 100, 20_000_000)))
        self.printed(replay.command(self.fetch_plan(topic, 100, seconds * 200_000_000)))

    def produce_plan(
        self, topic: str, record_bytes: int, value_bytes: int, *, idempotent: bool = False
    ) -> replay.ProduceReplay:
        """Requests as a busy Java producer sends them: one full batch for every partition of the topic."""
        batch_records = BATCH_RECORDS[record_bytes]
        return replay.ProduceReplay(
            port=self.shared().port,
            topic=topic,
            partitions=TOPIC_PARTITIONS,
            record_bytes=record_bytes,
            batch_records=batch_records,
            batches_per_request=TOPIC_PARTITIONS,
            requests=value_bytes // (TOPIC_PARTITIONS * batch_records * record_bytes),
            connections=REPLAY_CONNECTIONS,
            in_flight_max=REPLAY_IN_FLIGHT,
            acks=1,
            idempotent=idempotent,
        )

    def single_record_plan(
        self, topic: str, record_bytes: int, requests: int, acks: int, in_flight_max: int = REPLAY_IN_FLIGHT
    ) -> replay.ProduceReplay:
        return replay.ProduceReplay(
            port=self.shared().port,
            topic=topic,
            partitions=TOPIC_PARTITIONS,
            record_bytes=record_bytes,
            batch_records=1,
            batches_per_request=1,
            requests=requests,
            connections=2 * REPLAY_CONNECTIONS,
            in_flight_max=in_flight_max,
            acks=acks,
            idempotent=False,
        )

    def fetch_plan(self, topic: wire.Topic, record_bytes: int, value_bytes: int) -> replay.FetchReplay:
        with wire.Connection(self.shared().port) as connection:
            ends = wire.end_offsets(connection, topic)
        log_bytes = sum(ends or [0]) * record_bytes
        if not log_bytes:
            raise processes.Failed(f"there is nothing to fetch in {topic.name}")
        connections = 2 * REPLAY_CONNECTIONS
        # Every partition is read by connections / partitions of them in each pass.
        pass_bytes = log_bytes * connections // topic.partitions
        return replay.FetchReplay(
            port=self.shared().port,
            topic_id=str(topic.topic_id),
            partitions=topic.partitions,
            record_bytes=record_bytes,
            batch_records=BATCH_RECORDS[record_bytes],
            connections=connections,
            passes=max(1, value_bytes // pass_bytes),
            partition_fetch_bytes_max=1024 * 1024,  # the consumers' default
        )

    def replayed(self, plan: replay.ProduceReplay | replay.FetchReplay) -> Sample:
        """Records per second by the raw replayer."""
        cpu_before = self._settled_cpu()
        result = self.printed(replay.command(plan))
        rate = result["records"] / result["seconds"]
        return self._rate_sample(rate, result["records"], cpu_before, client_cpu_seconds=result["cpu_seconds"])

    def producer_performance(
        self,
        topic: str,
        record_bytes: int,
        records: int,
        properties: dict[str, str],
        cluster: clusters.Cluster | None = None,
        broker_cores: float | None = None,
    ) -> Sample:
        """Records per second by Kafka's ProducerPerformance, its first two thirds not counted, while Java's compiler is
        at work. Against the shared broker, unless a cluster is named; it may be confined to a part of a core."""
        arguments = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--throughput", "-1"]
        arguments += ["--num-records", str(records), "--payload-file", str(self._payloads(record_bytes))]
        arguments += ["--warmup-records", str(records * 2 // 3), "--bootstrap-server"]
        arguments += [self._address() if cluster is None else cluster.address]
        arguments += ["--command-property"]
        arguments += [f"{name}={value}" for name, value in properties.items()]
        cpu_before = self._settled_cpu(cluster)
        command = brokers.java_command(*arguments, jvm=_PRODUCER_JVM)
        if broker_cores is None:
            printed = self._run(command)
        else:
            with confining.confined(self.shared().pids(), broker_cores):
                printed = self._run(command)
        # It reports every few seconds, then all records, then those after the warm-up.
        rates = _RATE.findall(printed)
        if "steady state" not in printed or not rates:
            raise processes.Failed(f"ProducerPerformance printed no result: {printed[-300:]}")
        return self._rate_sample(float(rates[-1]), records, cpu_before, cluster=cluster)

    def _payloads(self, record_bytes: int) -> Path:
        """Values for ProducerPerformance to choose from: left to itself it draws every byte of every record, a quarter
        of its CPU time with 1 KB."""
        path = self.directory / f"payloads-{record_bytes}"
        if not path.exists():
            drawn = random.Random(record_bytes)
            letters = string.ascii_uppercase
            path.write_text("".join("".join(drawn.choices(letters, k=record_bytes)) + "\n" for _ in range(_PAYLOADS)))
        return path

    def consumer_performance(self, topic: str, records: int) -> Sample:
        """Records per second by Kafka's ConsumerPerformance, from its first fetch on."""
        arguments = ["org.apache.kafka.tools.ConsumerPerformance", "--topic", topic, "--num-records", str(records)]
        arguments += ["--bootstrap-server", self._address(), "--hide-header", "--timeout", "20000"]
        cpu_before = self._settled_cpu()
        printed = self._run(brokers.java_command(*arguments, jvm=_CLIENT_HEAP))
        fields = printed.strip().splitlines()[-1].split(", ")
        if len(fields) != 10 or int(fields[4]) < records:
            raise processes.Failed(f"ConsumerPerformance did not read {records} records: {printed[-300:]}")
        return self._rate_sample(float(fields[9]), records, cpu_before)

    def latencies(self, plan: latency.LatencyPlan) -> dict[str, float]:
        self._settled_cpu()
        return self.printed(latency.command(plan))

    def transactions(self, plan: transactions.TransactionsPlan) -> dict[str, float]:
        self.settle()
        return self.printed(transactions.command(plan))

    def transactions_replayed(self, plan: transaction_replay.TransactionReplay) -> Sample:
        """Commits per second by the raw replayer."""
        cpu_before = self._settled_cpu()
        result = self.printed(transaction_replay.command(plan))
        rate = result["commits"] / result["seconds"]
        sample = self._rate_sample(rate, result["commits"], cpu_before, client_cpu_seconds=result["cpu_seconds"])
        return replace(sample, note=f"asked again {result['retries']:.0f} times")

    def group_settles(self, plan: group_members.MembersPlan) -> tuple[dict[str, float], dict[str, float]]:
        """(What the members saw, how long somebody else had to wait meanwhile.)"""
        self._settled_cpu()
        output = self.directory / "pings.json"
        output.unlink(missing_ok=True)
        # Kafka's threads serve one beside the other: what all of them work says nothing of who waits for whom.
        pid = self.shared().pids()[-1] if self.kind is brokers.Penstock else None
        command = pinging.command(self.shared().port, output, pid)
        pings = processes.start(command, self.directory / "pings.out", self._environment())
        try:
            settled = self.printed(group_members.command(plan))
        finally:
            processes.end(pings, timeout_s=10)
        if not output.exists():
            raise processes.Failed(f"the pings broke off: {processes.last_lines(self.directory / 'pings.out')}")
        waits: dict[str, float] = json.loads(output.read_text())
        return settled, waits

    def http_loaded(self, plan: http_load.HttpLoad, server_pid: int) -> Sample:
        """Records per second, or requests where an answer is none. The CPU is the broker's, the note has the
        server's."""
        cpu_before = self._settled_cpu()
        server_before_s = processes.cpu_seconds([server_pid])
        result = self.printed(http_load.command(plan))
        server_ms = (processes.cpu_seconds([server_pid]) - server_before_s) * 1000 / max(result["requests"], 1)
        sample = self._rate_sample(
            result["records"] / result["seconds"],
            result["records"],
            cpu_before,
            client_cpu_seconds=result["cpu_seconds"],
        )
        note = f"p99 of a request {result['p99_ms']:.0f} ms, CPU of the server for one {server_ms:.2f} ms"
        return replace(sample, note=note)

    def committed(self, plan: group_commits.CommitReplay) -> Sample:
        """Offsets per second."""
        cpu_before = self._settled_cpu()
        result = self.printed(group_commits.command(plan))
        offsets = result["requests"] * plan.offsets_per_request
        return self._rate_sample(
            offsets / result["seconds"], offsets, cpu_before, client_cpu_seconds=result["cpu_seconds"]
        )

    def answered(self, command: list[str], timeout_s: float = _CLIENT_TIMEOUT_S) -> dict[str, float]:
        """What a client of its own prints as JSON."""
        self._settled_cpu()
        printed = processes.run(command, self.directory / "client.out", timeout_s, self._environment())
        result: dict[str, float] = json.loads(printed.splitlines()[-1])
        return result

    def _rate_sample(
        self,
        rate: float,
        records: float,
        cpu_before: CpuSeconds,
        client_cpu_seconds: float | None = None,
        cluster: clusters.Cluster | None = None,
    ) -> Sample:
        """`client_cpu_seconds` where the client tells it; otherwise its start-up is part of it."""
        after = self._cpu(cluster)
        if client_cpu_seconds is None:
            client_cpu_seconds = after.clients - cpu_before.clients
        return Sample(
            rate,
            cpu_seconds_per_million=(after.broker - cpu_before.broker) / records * 1e6,
            client_cpu_seconds_per_million=client_cpu_seconds / records * 1e6,
        )

    def _cpu(self, cluster: clusters.Cluster | None = None) -> CpuSeconds:
        pids = self.shared().pids() if cluster is None else cluster.pids()
        return CpuSeconds(processes.cpu_seconds(pids), processes.ended_children_cpu_seconds())

    def settle(self) -> None:
        """What earlier measurements wrote must not be on its way to the disk during this one."""
        shutil.rmtree(self._warm, ignore_errors=True)
        os.sync()
        self._warm_memory()

    def forget(self, topic: str) -> None:
        """Takes what was written to a topic out of the page cache, where nobody will read it: once memory is full of
        it, the kernel makes room on the cores that are measured."""
        os.sync()
        for path in self.shared().directory.rglob(f"{topic}-*/*.log"):
            with path.open("rb") as segment:
                os.posix_fadvise(segment.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _settled_cpu(self, cluster: clusters.Cluster | None = None) -> CpuSeconds:
        self.settle()
        return self._cpu(cluster)

    def _warm_memory(self) -> None:
        """Pages that a virtual machine has not used lately are first fetched from its host, which makes writing to the
        page cache three times as slow: so there are as many warm ones as a measurement writes. What is free in pieces
        of 2 MiB goes back to the host within seconds; so a little of every MiB stays in use."""
        self._warm.mkdir()
        kept, freed = bytes(64 << 10), bytes(960 << 10)
        count = (self.sizes.tool_bytes + _PRODUCER_HEAP_BYTES) // len(freed)
        for number in range(count):
            (self._warm / f"kept-{number}").write_bytes(kept)
            (self._warm / f"freed-{number}").write_bytes(freed)
        for number in range(count):
            (self._warm / f"freed-{number}").unlink()

    def _address(self) -> str:
        return f"127.0.0.1:{self.shared().port}"

    def _run(self, command: list[str]) -> str:
        return processes.run(command, self.directory / "client.out", _CLIENT_TIMEOUT_S, self._environment())

    @staticmethod
    def _environment() -> dict[str, str]:
        return {"PYTHONPATH": f"{brokers.REPOSITORY}{os.pathsep}{brokers.REPOSITORY / 'src'}"}

    def printed(self, command: list[str]) -> dict[str, float]:
        """Runs a client of ours to its end; what it says in its last line."""
        result: dict[str, float] = json.loads(self._run(command).splitlines()[-1])
        return result
