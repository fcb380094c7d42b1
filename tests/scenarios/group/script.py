"""The commands of group scenarios, and how what the coordinator does is told in text.

    settings NAME=VALUE ...              before anything else
    topic NAME PARTITIONS                makes a topic or lets it grow; `topic NAME gone` deletes it
    join CLIENT [instance=I] [protocols=range,sticky] [metadata=M] [session=MS] [rebalance=MS] [version=V] [as=NOBODY]
    sync CLIENT [assign=CLIENT:TEXT,...] [generation=N]
    heartbeat CLIENT [generation=N]
    leave CLIENT                         `leave - instance=I` is an administrator's
    commit CLIENT TOPIC-PARTITION=OFFSET ... [generation=N] [metadata-length=N]
    fetch TOPIC-PARTITION ...
    delete
    describe, list, evictions
    advance MS                           lets time pass
    live MS CLIENT ...                   the same, while these clients send heartbeats; told is which answers change
    restart                              another coordinator loads the log

All are about the group `g`, or the one named by `group=`. A client joins with the member id it was given last, or with
another one's (`as=`). Ids are told as CLIENT#1, CLIENT#2, ... in the order in which they were given out.
"""

import inspect
from typing import Any

from penstock.coordinator.effects import Answer, Append, CoordinatorRecord
from penstock.coordinator.group.records import GroupMetadataValue, OffsetCommitValue
from penstock.protocol.messages import Struct
from tests.unit.group.coordinator import START_MS, Coordinator

Options = dict[str, str]
HEARTBEAT_INTERVAL_MS = 3000


class Script:
    def __init__(self) -> None:
        self._coordinator = Coordinator()
        self._asked: dict[int, tuple[str, str]] = {}
        self._member_ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._names: dict[str, str] = {"": "nobody"}

    def run(self, line: str) -> str:
        """Runs a command and tells everything the coordinator did."""
        name, *words = line.split()
        options = {key: value for key, _, value in (word.partition("=") for word in words if "=" in word)}
        plain = [word for word in words if "=" not in word]
        self._coordinator.performed.clear()
        command = getattr(self, f"do_{name}")
        told = command(*plain, options) if inspect.signature(command).parameters else command()
        performed = self._coordinator.performed
        for effect in performed:
            if isinstance(effect, Answer) and self._asked[effect.token][1] == "join_group":
                self._name_member(self._asked[effect.token][0], effect.body.member_id)
        lines = [self._tell(effect) for effect in performed] + (told or [])
        if name == "live":
            lines = _changes(lines)
        return "\n".join(lines) or "(nothing)"

    def do_settings(self, options: Options) -> None:
        self._coordinator = Coordinator(**options)

    def do_topic(self, name: str, partitions: str, options: Options) -> None:
        if partitions == "gone":
            self._coordinator.topics.remove(name)
        else:
            self._coordinator.topics.set(name, int(partitions))
        self._coordinator.topics_changed()

    def do_join(self, client: str, options: Options) -> None:
        metadata = options.get("metadata", client).encode()
        member_id = self._member_ids.get(options.get("as", client), "")
        self._send(
            client,
            "join_group",
            options,
            member_id=member_id,
            group_instance_id=options.get("instance"),
            session_timeout=int(options.get("session", 10_000)),
            rebalance_timeout=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "test"),
            protocols=[Struct(name=name, metadata=metadata) for name in options.get("protocols", "range").split(",")],
        )

    def do_sync(self, client: str, options: Options) -> None:
        assignments = [one.split(":") for one in options.get("assign", "").split(",") if one]
        self._send(
            client,
            "sync_group",
            options,
            **self._member(client, options),
            assignments=[
                Struct(member_id=self._member_ids[who], assignment=text.encode()) for who, text in assignments
            ],
        )

    def do_heartbeat(self, client: str, options: Options) -> None:
        self._send(client, "heartbeat", options, **self._member(client, options))

    def do_leave(self, client: str, options: Options) -> None:
        member_id = self._member_ids.get(client, "")
        leaving = Struct(member_id=member_id, group_instance_id=options.get("instance"), reason=options.get("reason"))
        self._send(client, "leave_group", options, member_id=member_id, members=[leaving])

    def do_commit(self, client: str, options: Options) -> None:
        metadata = "m" * int(options.pop("metadata-length", 0))
        offsets = {key: int(value) for key, value in options.items() if "-" in key}
        topics = [
            Struct(
                name=name,
                partitions=[Struct(partition_index=int(index), committed_offset=offset, committed_metadata=metadata)],
            )
            for (name, _, index), offset in ((key.rpartition("-"), offset) for key, offset in offsets.items())
        ]
        member = self._member(client, options)
        member["generation_id_or_member_epoch"] = member.pop("generation_id")
        self._send(client, "offset_commit", options, **member, topics=topics)

    def do_fetch(self, *words: Any) -> None:
        *partitions, options = words
        asked = [
            Struct(name=name, partition_indexes=[int(index)])
            for name, _, index in (word.rpartition("-") for word in partitions)
        ]
        group_id = options.pop("group", "g")
        self._send("fetch", "offset_fetch", options, groups=[Struct(group_id=group_id, topics=asked or None)])

    def do_delete(self, options: Options) -> None:
        self._send("delete", "delete_groups", options, groups_names=[options.pop("group", "g")])

    def do_describe(self, options: Options) -> None:
        self._send("describe", "describe_groups", options, groups=[options.pop("group", "g")])

    def do_list(self, options: Options) -> None:
        self._send("list", "list_groups", options)

    def do_evictions(self, options: Options) -> list[str]:
        return [
            f"{self._name(one.member_id)} at {one.at_ms - START_MS}: {one.reason}"
            for one in self._coordinator.shard.evictions(options.get("group", "g"))
        ]

    def do_advance(self, duration_ms: str, options: Options) -> None:
        self._coordinator.advance(int(duration_ms))

    def do_live(self, duration_ms: str, *clients_and_options: Any) -> None:
        *clients, options = clients_and_options
        for _ in range(int(duration_ms) // HEARTBEAT_INTERVAL_MS):
            for client in clients:
                self.do_heartbeat(client, options)
            self._coordinator.advance(HEARTBEAT_INTERVAL_MS)

    def do_restart(self) -> None:
        self._coordinator.restart()

    def _member(self, client: str, options: Options) -> dict[str, Any]:
        return {
            "member_id": self._member_ids.get(client, ""),
            "group_instance_id": options.get("instance"),
            "generation_id": int(options.get("generation", self._generations.get(client, -1))),
        }

    def _send(self, client: str, api: str, options: Options, **fields: Any) -> None:
        version = int(options["version"]) if "version" in options else None
        token = self._coordinator.send(
            api, version, client_id=client, **{"group_id": options.get("group", "g"), **fields}
        )
        self._asked[token] = (client, api)

    def _tell(self, effect: Any) -> str:
        if isinstance(effect, Append):
            return "\n".join(f"append {self._tell_record(record)}" for record in effect.records)
        assert isinstance(effect, Answer)
        client, api = self._asked.pop(effect.token)
        answer = self._coordinator.answers.pop(effect.token)
        return f"{client} <- {api}: {getattr(self, f'_tell_{api}')(client, answer)}"

    def _tell_record(self, record: CoordinatorRecord) -> str:
        value = record.value
        if isinstance(value, GroupMetadataValue):
            members = " ".join(f"{self._name(one.member_id)}={one.assignment.decode()!r}" for one in value.members)
            return (
                f"group {record.key.group} generation={value.generation} protocol={value.protocol} "
                f"leader={self._name(value.leader)} members=[{members}]"
            )
        if isinstance(value, OffsetCommitValue):
            return f"offset {record.key.group} {record.key.topic}-{record.key.partition} {value.offset}"
        key = " ".join(str(getattr(record.key, name)) for name in record.key.__slots__)
        return f"{type(record.key).__name__} {key} gone"

    def _tell_join_group(self, client: str, answer: Any) -> str:
        self._member_ids[client] = answer.member_id
        if answer.error_code:
            return f"{answer.error_code.name} {self._name(answer.member_id)}"
        self._generations[client] = answer.generation_id
        members = " ".join(one.metadata.decode() for one in answer.members)
        skip = " skip-assignment" if getattr(answer, "skip_assignment", False) else ""
        return (
            f"none {self._name(answer.member_id)} generation={answer.generation_id} protocol={answer.protocol_name} "
            f"is-leader={answer.leader == answer.member_id} members=[{members}]{skip}"
        )

    def _tell_sync_group(self, client: str, answer: Any) -> str:
        return f"{answer.error_code.name} {answer.assignment.decode()!r}"

    def _tell_heartbeat(self, client: str, answer: Any) -> str:
        return str(answer.error_code.name)

    def _tell_leave_group(self, client: str, answer: Any) -> str:
        return " ".join(one.error_code.name for one in getattr(answer, "members", ())) or str(answer.error_code.name)

    def _tell_offset_commit(self, client: str, answer: Any) -> str:
        return " ".join(
            f"{topic.name}-{one.partition_index}={one.error_code.name}"
            for topic in answer.topics
            for one in topic.partitions
        )

    def _tell_offset_fetch(self, client: str, answer: Any) -> str:
        return " ".join(
            f"{topic.name}-{one.partition_index}={one.committed_offset}"
            for topic in answer.groups[0].topics
            for one in topic.partitions
        )

    def _tell_delete_groups(self, client: str, answer: Any) -> str:
        return str(answer.results[0].error_code.name)

    def _tell_describe_groups(self, client: str, answer: Any) -> str:
        group = answer.groups[0]
        members = " ".join(f"{self._name(one.member_id)}={one.member_assignment.decode()!r}" for one in group.members)
        return f"{group.error_code.name} {group.group_state} protocol={group.protocol_data!r} members=[{members}]"

    def _tell_list_groups(self, client: str, answer: Any) -> str:
        return " ".join(f"{group.group_id}:{group.group_state}:{group.group_type}" for group in answer.groups)

    def _name_member(self, client: str, member_id: str) -> None:
        if member_id not in self._names:
            count = sum(name.startswith(f"{client}#") for name in self._names.values())
            self._names[member_id] = f"{client}#{count + 1}"

    def _name(self, member_id: str | None) -> str:
        return "nobody" if member_id is None else self._names.get(member_id, "somebody")


def _changes(lines: list[str]) -> list[str]:
    """Without the answers that say what the same client was answered before."""
    changes = []
    last: dict[str, str] = {}
    for line in lines:
        client = line.partition(":")[0]
        if last.get(client) != line:
            changes.append(line)
        last[client] = line
    return changes
