"""The commands of transaction scenarios, and how what the coordinator does is told in text.

    settings NAME=VALUE ...          before anything else
    init CLIENT [version=V] [timeout=MS] [claims] [two-phase] [keep]    `claims`: names the id and epoch that it has
    add CLIENT TOPIC-PARTITION ... [verify]
    commit CLIENT, abort CLIENT      [version=V]
    markers [TOPIC-PARTITION ...]    the partitions that markers were sent to have them; without names, all
    describe, list
    advance MS                       lets time pass
    restart                          another coordinator loads the log

All are about the transactional id `t`, or the one named by `id=`. A client has the producer id and epoch that it was
last answered, told as ID:EPOCH, unless `producer=` says otherwise: it did not hear the last answer.
"""

import inspect
from typing import Any

from penstock.coordinator.effects import Answer, Append, CoordinatorRecord, Send
from penstock.coordinator.transaction.records import NO_TIMEOUT_MS
from penstock.coordinator.transaction.requests import TopicPartition
from penstock.coordinator.transaction.states import NAMES
from tests.unit.transaction.coordinator import Coordinator

Options = dict[str, str]


class Script:
    def __init__(self) -> None:
        self._coordinator = Coordinator()
        self._asked: dict[int, tuple[str, str]] = {}
        self._producers: dict[str, tuple[int, int]] = {}

    def run(self, line: str) -> str:
        """Runs a command and tells everything the coordinator did."""
        name, *words = line.split()
        options = {key: value for key, _, value in (word.partition("=") for word in words if "=" in word)}
        plain = [word for word in words if "=" not in word]
        self._coordinator.performed.clear()
        command = getattr(self, f"do_{name}")
        told = command(*plain, options) if inspect.signature(command).parameters else command()
        lines = [self._tell(effect) for effect in self._coordinator.performed] + (told or [])
        return "\n".join(lines) or "(nothing)"

    def do_settings(self, options: Options) -> None:
        self._coordinator = Coordinator(**{name.replace(".", "_"): value for name, value in options.items()})

    def do_init(self, client: str, *words: Any) -> None:
        *flags, options = words
        producer_id, producer_epoch = self._producers.get(client, (-1, -1)) if "claims" in flags else (-1, -1)
        token = self._coordinator.send_init(
            options.get("id", "t"),
            int(options["version"]) if "version" in options else None,
            transaction_timeout=int(options.get("timeout", 60_000)),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            enable2_pc="two-phase" in flags,
            keep_prepared_txn="keep" in flags,
        )
        self._note(token, client, "init")

    def do_add(self, client: str, *words: Any) -> None:
        *names, options = words
        token = self._coordinator.send_add(
            options.get("id", "t"),
            self._producer(client, options),
            *(_partition(name) for name in names if name != "verify"),
            verify_only="verify" in names,
        )
        self._note(token, client, "add")

    def do_commit(self, client: str, options: Options) -> None:
        self._end(client, options, commit=True)

    def do_abort(self, client: str, options: Options) -> None:
        self._end(client, options, commit=False)

    def do_markers(self, *words: Any) -> None:
        *names, _ = words
        sent = list(self._coordinator.sent)
        self._coordinator.write_markers(*map(_partition, names))
        if names:
            self._coordinator.sent = [one for one in sent if self._coordinator.shard.unmarked(one)]

    def do_describe(self, options: Options) -> list[str]:
        state = self._coordinator.describe(options.get("id", "t"))
        self._coordinator.performed.clear()
        partitions = [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions]
        producer = f"{state.producer_id}:{state.producer_epoch}"
        return [f"{state.error_code.name} {state.transaction_state} {producer} [{' '.join(partitions)}]"]

    def do_list(self) -> list[str]:
        return [f"{name} {state}" for name, state in self._coordinator.listed()]

    def do_advance(self, duration_ms: str, options: Options) -> None:
        self._coordinator.advance(int(duration_ms))

    def do_restart(self) -> None:
        self._coordinator.restart()

    def _end(self, client: str, options: Options, *, commit: bool) -> None:
        version = int(options["version"]) if "version" in options else None
        token = self._coordinator.send_end(
            options.get("id", "t"), self._producer(client, options), commit=commit, version=version
        )
        self._note(token, client, "commit" if commit else "abort")

    def _producer(self, client: str, options: Options) -> tuple[int, int]:
        if "producer" not in options:
            return self._producers[client]
        producer_id, _, epoch = options["producer"].partition(":")
        return int(producer_id), int(epoch)

    def _note(self, token: int, client: str, what: str) -> None:
        """Requests that wait are answered in a later command."""
        self._asked[token] = client, what

    def _tell(self, effect: Any) -> str:
        if isinstance(effect, Append):
            return "\n".join(f"append {_tell_record(record)}" for record in effect.records)
        if isinstance(effect, Send):
            markers = effect.message
            kind = "commit" if markers.is_commit else "abort"
            where = " ".join(f"{topic}-{index}" for topic, index in markers.partitions)
            return f"markers {kind} {markers.producer_id}:{markers.producer_epoch} to {where}"
        assert isinstance(effect, Answer)
        client, what = self._asked[effect.token]
        answer = self._coordinator.answers.pop(effect.token)
        if what == "add":
            told = " ".join(
                f"{topic}-{index}={answer.errors[topic, index].name}" for topic, index in sorted(answer.errors)
            )
            return f"{client} <- {what}: {told}"
        told = answer.error_code.name
        if not answer.error_code and hasattr(answer, "producer_id"):
            self._producers[client] = answer.producer_id, answer.producer_epoch
            told += f" {answer.producer_id}:{answer.producer_epoch}"
            if getattr(answer, "ongoing_txn_producer_id", -1) != -1:
                told += f" ongoing {answer.ongoing_txn_producer_id}:{answer.ongoing_txn_producer_epoch}"
        return f"{client} <- {what}: {told}"


def _partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _tell_record(record: CoordinatorRecord) -> str:
    value = record.value
    if value is None:
        return f"{record.key} gone"
    partitions = " ".join(f"{topic}-{index}" for topic, index in sorted(value.partitions))
    told = f"{record.key} {NAMES[value.state]} {value.producer_id}:{value.producer_epoch} [{partitions}]"
    if value.next_producer_id != -1:
        told += f" next {value.client_producer_id}:{value.client_producer_epoch}"
    return f"{told} no timeout" if value.timeout_ms == NO_TIMEOUT_MS else told
