"""Which of several registries writes: the one that the group's protocol gives the topic's only partition.

All of them join one consumer group on `_schemas`. A member's client id carries the URL under which the others reach
it, so whoever is not the leader asks the cluster who is.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

log = logging.getLogger("penstock.registry")

_CLIENT_ID_PREFIX = "penstock-registry "
_ASK_SECONDS = 5.0
# A leader's URL is asked for again after this time.
_LEADER_SECONDS = 1.0
_POLL_SECONDS = 0.2


class Election:
    def __init__(
        self, config: dict[str, Any], topic: str, group: str, url: str, on_change: Callable[[bool], None]
    ) -> None:
        self._config = config
        self._topic = topic
        self._group = group
        self._url = url
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._is_stopping = threading.Event()
        self._member: threading.Thread | None = None
        self._admin: AdminClient | None = None
        self._leader: tuple[float, str | None] = (0.0, None)

    def start(self) -> None:
        self._member = threading.Thread(target=self._take_part, name="registry-election", daemon=True)
        self._member.start()

    async def stop(self) -> None:
        """Leaves the group, so that another one takes over at once."""
        self._is_stopping.set()
        if self._member is not None:
            await asyncio.to_thread(self._member.join)

    async def leader_url(self) -> str | None:
        """Of the leader as the cluster sees it; None if there is none."""
        asked, url = self._leader
        if url is None or time.monotonic() - asked > _LEADER_SECONDS:
            url = await asyncio.to_thread(self._ask)
            self._leader = (time.monotonic(), url)
        return url

    def forget_leader(self) -> None:
        self._leader = (0.0, None)

    # In threads: everything below.

    def _take_part(self) -> None:
        consumer = Consumer(
            self._config
            | {
                "group.id": self._group,
                "client.id": _CLIENT_ID_PREFIX + self._url,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # The classic protocol, because its members may ask for a short session: this is how long nobody can
                # write after a leader was killed. The new one has the broker's, of 45 s.
                "group.protocol": "classic",
                # Who leads keeps leading when others come and go.
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
                "allow.auto.create.topics": False,
            }
        )

        def assigned(member: Consumer, partitions: list[TopicPartition]) -> None:
            # Only the assignment counts; nothing is read.
            if partitions:
                member.incremental_assign(partitions)
                member.pause(partitions)
                self._tell(True)

        def revoked(member: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                member.incremental_unassign(partitions)
                self._tell(False)

        try:
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
            while not self._is_stopping.is_set():
                message = consumer.poll(_POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None:
                    log.warning("the registry's group answers: %s", error.str())
        except KafkaException as problem:
            log.error("the registry cannot take part in the election: %s", problem)
        finally:
            self._tell(False)
            consumer.close()

    def _tell(self, is_leader: bool) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop may be closed already when the process ends.
            self._loop.call_soon_threadsafe(self._on_change, is_leader)

    def _ask(self) -> str | None:
        if self._admin is None:
            self._admin = AdminClient(self._config)
        try:
            described = self._admin.describe_consumer_groups([self._group], request_timeout=_ASK_SECONDS)
            members = described[self._group].result(_ASK_SECONDS).members
        except (KafkaException, TimeoutError) as problem:
            log.warning("the leader of the registry is not known: %s", problem)
            return None
        for member in members:
            if member.assignment is not None and member.assignment.topic_partitions:
                client_id: str = member.client_id
                if client_id.startswith(_CLIENT_ID_PREFIX):
                    return client_id.removeprefix(_CLIENT_ID_PREFIX)
        return None
