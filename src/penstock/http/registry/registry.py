"""The registry of one process: the store, who may write to it, and how.

A change is decided from the store, recorded in the topic, read back and replayed; then it is answered. Decisions are
made one at a time, by the leader only, in a thread: nothing changes the store meanwhile, because nobody else writes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.http.registry import errors
from penstock.http.registry.election import Election
from penstock.http.registry.records import Record, StoredSchema
from penstock.http.registry.schemas import Schemas
from penstock.http.registry.store import Store
from penstock.http.registry.topic import ClientConfig, SchemasTopic

log = logging.getLogger("penstock.registry")

T = TypeVar("T")

_LEADER_SECONDS_MAX = 2.0


class Registry:
    """`url` is where other registries of the cluster reach this one."""

    def __init__(
        self,
        bootstrap_servers: str,
        url: str,
        *,
        topic: str = "_schemas",
        group: str = "schema-registry",
        client_config: ClientConfig | None = None,
    ) -> None:
        self.store = Store()
        self.schemas = Schemas(self.store)
        self.group = group
        self.url = url
        self._topic_name = topic
        self._config: ClientConfig = {
            "bootstrap.servers": bootstrap_servers,
            # Its own lines about lost connections go to stderr; what matters is logged here.
            "log_level": 2,
            **(client_config or {}),
        }
        self._is_leader = False
        self._has_caught_up = False
        self._elected = asyncio.Event()
        self._writing = asyncio.Lock()
        self._topic: SchemasTopic | None = None
        self._election: Election | None = None

    async def start(self) -> None:
        """Returns when everything that is registered is known; who leads shows later."""
        self._topic = SchemasTopic(self._config, self._topic_name, self.store.replay)
        try:
            await self._topic.start()
        except BaseException:
            await self._topic.stop()
            self._topic = None
            raise
        self._election = Election(self._config, self._topic_name, self.group, self.url, self._on_elected)
        self._election.start()

    async def stop(self) -> None:
        if self._election is not None:
            await self._election.stop()
            self._election = None
        if self._topic is not None:
            await self._topic.stop()
            self._topic = None

    @property
    def is_leader(self) -> bool:
        return self._is_leader

    @property
    def client_config(self) -> ClientConfig:
        return self._config

    def _on_elected(self, is_leader: bool) -> None:
        if is_leader != self._is_leader:
            log.info("the registry at %s %s", self.url, "leads" if is_leader else "does not lead")
        self._is_leader = is_leader
        self._has_caught_up = False
        if is_leader:
            self._elected.set()
        else:
            self._elected.clear()
        if self._election is not None:
            self._election.forget_leader()

    async def other_leader(self) -> str | None:
        """The URL of the leader, or None if it is this one. Raises RegistryError 50004 if there is none for a while."""
        deadline = asyncio.get_running_loop().time() + _LEADER_SECONDS_MAX
        while not self._is_leader:
            if self._election is None:
                raise errors.no_leader()
            url = await self._election.leader_url()
            if url is not None and url != self.url:
                return url
            # Nobody, or this one, to whom it was not said yet: the group is about to decide.
            if asyncio.get_running_loop().time() > deadline:
                raise errors.no_leader()
            self._election.forget_leader()
            try:
                await asyncio.wait_for(self._elected.wait(), 0.2)
            except TimeoutError:
                continue
        return None

    def forget_leader(self) -> None:
        if self._election is not None:
            self._election.forget_leader()

    async def change(self, decide: Callable[[], tuple[list[Record], T]]) -> T:
        """What was decided, when it is in the topic and replayed. Raises RegistryError, and 50004 if this is not the
        leader any more."""
        async with self._writing:
            if not self._is_leader or self._topic is None:
                raise errors.no_leader()
            if not self._has_caught_up:
                # The last leader may have written until a moment ago.
                await self._topic.catch_up()
                self._has_caught_up = True
            records, answer = await asyncio.to_thread(decide)
            if records:
                if not self._is_leader:
                    raise errors.no_leader()
                try:
                    await self._topic.write(records)
                except errors.RegistryError:
                    # It may have been written nevertheless.
                    self._has_caught_up = False
                    raise
                if not all(map(self._took_effect, records)):
                    raise errors.store_failed("another registry wrote at the same time; try again")
            return answer

    def _took_effect(self, record: Record) -> bool:
        """A schema whose id another leader has given away meanwhile is not in the store."""
        if not isinstance(record.value, StoredSchema):
            return True
        found = self.store.version(record.value.subject, record.value.version, with_deleted=True)
        return found is not None and (found.id, found.hash) == (record.value.id, record.value.hash)
