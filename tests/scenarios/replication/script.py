"""The commands of replication scenarios: three brokers, one partition, real cores and logs. Nothing happens by itself.

produce ID VALUE [acks=1]      at the broker that believes it leads
fetch ID                       one fetch of a follower, with its answer
read ID                        the broker reads the metadata that is there
controller                     delivers proposals to the controller, and its answers
beat ID                        registers the broker, or sends a heartbeat
kill ID, stop ID, cut ID       a crash; a clean end; a crash that loses everything that was written
start ID
lost ID                        the controller learns that the broker is gone
advance MS                     lets time pass, with a tick for the leader
show
"""

from typing import Any

from tests.unit.replication.simulation import Simulation


class Script:
    def __init__(self) -> None:
        self._simulation = simulation = Simulation(seed=0)
        simulation.is_calm = True
        for broker_id in simulation.nodes:
            self.do_read(str(broker_id))

    def run(self, line: str) -> str:
        name, *words = line.split()
        getattr(self, f"do_{name}")(*words)
        self._simulation.check()
        return self._tell()

    def _tell(self) -> str:
        simulation = self._simulation
        one = simulation.partition
        acknowledged = [value.decode() for value in simulation.acknowledged.values()]
        lines = [
            f"leader={one.leader} epoch={one.leader_epoch} isr={list(one.isr)} "
            f"elr={list(one.eligible_leader_replicas)} acknowledged={acknowledged}"
        ]
        for node in simulation.nodes.values():
            role = "down"
            if node.is_running:
                role = "idle"
                if node.leader.is_leading:
                    role = f"leads in {node.leader.leader_epoch}"
                elif node.follower.leader_id >= 0:
                    role = f"follows {node.follower.leader_id} in {node.follower.leader_epoch}"
            entries = " ".join(f"{value.decode()}/{epoch}" for epoch, value in node.log.entries)
            lines.append(f"  {node.id} {role}: [{entries}] hw={node.high_watermark}")
        return "\n".join(lines)

    def _node(self, broker_id: str) -> Any:
        return self._simulation.nodes[int(broker_id)]

    def _deliver(self) -> None:
        while self._simulation.messages:
            self._simulation.messages.pop(0)()

    def do_show(self) -> None:
        pass

    def do_produce(self, broker_id: str, value: str, acks: str = "acks=all") -> None:
        node = self._node(broker_id)
        node.produce(value.encode(), self._simulation.now_ms, wait_for_all=acks == "acks=all")
        self._simulation._after(node)

    def do_fetch(self, broker_id: str) -> None:
        """The leader sends what it proposes before its answer: that waits for the controller."""
        simulation = self._simulation
        held, simulation.messages = simulation.messages, []
        simulation._fetch(self._node(broker_id))
        if simulation.messages:
            simulation.messages.pop()()
        if simulation.messages:
            simulation.messages.pop()()
        simulation.messages = held + simulation.messages

    def do_read(self, broker_id: str) -> None:
        self._simulation._read_metadata(self._node(broker_id), 1000)

    def do_controller(self) -> None:
        self._deliver()

    def do_beat(self, broker_id: str) -> None:
        self._simulation._heartbeat(self._node(broker_id))

    def do_kill(self, broker_id: str) -> None:
        self._node(broker_id).stop(clean=False)

    def do_stop(self, broker_id: str) -> None:
        self._node(broker_id).stop(clean=True)

    def do_cut(self, broker_id: str) -> None:
        self._node(broker_id).stop(clean=False)
        self._node(broker_id).disk.crash(lambda path, count: 0)

    def do_start(self, broker_id: str) -> None:
        node = self._node(broker_id)
        node.start(clean=node.previous_epoch >= 0, now_ms=self._simulation.now_ms)

    def do_lost(self, broker_id: str) -> None:
        simulation = self._simulation
        epoch = simulation.image.brokers[int(broker_id)].epoch
        simulation._decide(lambda: simulation.controller.on_connection_lost(int(broker_id), epoch))

    def do_advance(self, duration_ms: str) -> None:
        self._simulation.now_ms += int(duration_ms)
        for node in self._simulation.nodes.values():
            self._simulation._tick(node)
