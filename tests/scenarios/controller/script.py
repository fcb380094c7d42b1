"""The commands of controller scenarios. Told are the records of each decision, and the answer.

brokers ID ...                         registers and unfences them
topic NAME REPLICAS ... [min.insync.replicas=N] [unclean.leader.election.enable=true]
                                       one partition per list of replicas, as 1,2,3
register ID clean|unclean              another incarnation of the broker
beat ID [offset=N] [want=fence|shutdown]
lost ID                                its connection closed
advance MS                             lets time pass, with heartbeats of nobody
isr NAME-INDEX IDS [by=ID] [leader-epoch=N] [partition-epoch=N]
elect preferred|unclean [NAME-INDEX ...]
reassign NAME-INDEX IDS|cancel
unregister ID
set NAME SETTING=VALUE                 a topic's setting
show NAME-INDEX
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import Refused
from penstock.cluster.metadata.configs import Change, ResourceChanges
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.elections import ElectionType
from penstock.cluster.metadata.image import RESOURCE_TOPIC
from penstock.cluster.metadata.reassignments import Reassignment
from penstock.cluster.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from tests.unit.metadata.cluster_of_three import Brokers
from tests.unit.metadata.registering import bring_up, registration

Options = dict[str, str]
# How the lists of replicas are told.
_LISTS = {
    "isr": "isr",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last-known",
    "replicas": "replicas",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
}


class _Told(Brokers):
    """A cluster that writes down the records of every decision."""

    def __init__(self) -> None:
        self.told: list[str] = []
        super().__init__(None)
        self.do(self.controller.unregister_broker(1))
        self.incarnations.clear()
        self.told.clear()

    def do(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            answer = super().do(Decision(decision.answer, [record]))
            self.told.append(self._tell(record))
        return decision.answer if not decision.records else answer

    def _tell(self, record: MetadataRecord) -> str:
        match record:
            case RegisterBrokerRecord():
                return f"broker {record.broker_id} registered" + (" fenced" if record.fenced else "")
            case BrokerRegistrationChangeRecord():
                words = {1: " fenced", -1: " unfenced", 0: ""}[record.fenced]
                return f"broker {record.broker_id}{words}" + (" shutting down" * record.in_controlled_shutdown)
            case PartitionRecord() | PartitionChangeRecord():
                name = f"{self.image.topics_by_id[record.topic_id].name}-{record.partition_id}"
                return f"{name}{_tell_partition(record)}"
        return type(record).__name__.removesuffix("Record")


def _tell_partition(record: PartitionRecord | PartitionChangeRecord) -> str:
    words = "" if record.leader == LEADER_UNCHANGED else f" leader={record.leader}"
    for name, short_name in _LISTS.items():
        ids = getattr(record, name)
        if ids is not None and (ids or isinstance(record, PartitionChangeRecord)):
            words += f" {short_name}=[{','.join(map(str, ids))}]"
    return words + (" recovering" if record.leader_recovery_state == 1 else "")


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _partition(text: str) -> tuple[str, int]:
    name, _, index = text.rpartition("-")
    return name, int(index)


class Script:
    def __init__(self) -> None:
        self._cluster = _Told()

    def run(self, line: str) -> str:
        name, *words = line.split()
        options = {key: value for key, _, value in (word.partition("=") for word in words if "=" in word)}
        plain = [word for word in words if "=" not in word]
        self._cluster.told.clear()
        command: Callable[..., str | None] = getattr(self, f"do_{name}")
        try:
            answer = command(*plain, options)
        except Refused as refused:
            answer = f"{refused.code.name}: {refused.message}"
        lines = [*self._cluster.told, *([f"-> {answer}"] if answer else [])]
        return "\n".join(lines) or "(nothing)"

    def do_brokers(self, *words: Any) -> None:
        for broker_id in map(int, words[:-1]):
            bring_up(self._cluster.controller, self._cluster.do, registration(broker_id), self._cluster.now_ms)
            self._cluster.incarnations[broker_id] = 1
            self._cluster.beat(broker_id)

    def do_topic(self, name: str, *words: Any) -> None:
        *lists, options = words
        self._cluster.topic(name, *map(_ids, lists), **options)

    def do_register(self, broker_id: str, how: str, options: Options) -> None:
        self._cluster.register_again(int(broker_id), clean=how == "clean")

    def do_beat(self, broker_id: str, options: Options) -> str:
        offset = int(options["offset"]) if "offset" in options else None
        want = options.get("want")
        answer = self._cluster.beat(
            int(broker_id), offset=offset, want_fence=want == "fence", want_shut_down=want == "shutdown"
        )
        return ("fenced" if answer.is_fenced else "serving") + (" should-shut-down" * answer.should_shut_down)

    def do_lost(self, broker_id: str, options: Options) -> None:
        self._cluster.fence(int(broker_id))

    def do_advance(self, duration_ms: str, options: Options) -> None:
        end_ms = self._cluster.now_ms + int(duration_ms)
        while (deadline_ms := self._cluster.controller.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._cluster.do(self._cluster.controller.on_deadline(deadline_ms))
        self._cluster.now_ms = end_ms

    def do_isr(self, partition: str, isr: str, options: Options) -> str:
        fields: dict[str, Any] = {key.replace("-", "_"): int(value) for key, value in options.items() if key != "by"}
        by = int(options["by"]) if "by" in options else None
        altered = self._cluster.propose(_ids(isr), *_partition(partition), by, **fields)
        return altered.error_code.name

    def do_elect(self, kind: str, *words: Any) -> str:
        *partitions, _ = words
        asked = [_partition(one) for one in partitions] or None
        answers = self._cluster.do(self._cluster.controller.elect_leaders(ElectionType[kind.upper()], asked))
        return " ".join(f"{one.topic}-{one.partition_id}={one.error_code.name}" for one in answers)

    def do_reassign(self, partition: str, target: str, options: Options) -> str:
        name, index = _partition(partition)
        wanted = Reassignment(name, index, None if target == "cancel" else _ids(target))
        (answer,) = self._cluster.do(self._cluster.controller.alter_reassignments([wanted]))
        return str(answer.error_code.name)

    def do_unregister(self, broker_id: str, options: Options) -> None:
        self._cluster.do(self._cluster.controller.unregister_broker(int(broker_id)))

    def do_set(self, name: str, options: Options) -> None:
        changes = [Change(key, value) for key, value in options.items()]
        asked = [ResourceChanges(RESOURCE_TOPIC, name, changes)]
        self._cluster.do(self._cluster.controller.incremental_alter_configs(asked))
        self._cluster.do(self._cluster.controller.elect_unclean())

    def do_show(self, partition: str, options: Options) -> str:
        one = self._cluster.partition(*_partition(partition))
        return (
            f"leader={one.leader} epoch={one.leader_epoch}/{one.partition_epoch} replicas={list(one.replicas)} "
            f"isr={list(one.isr)} elr={list(one.eligible_leader_replicas)}"
        )
