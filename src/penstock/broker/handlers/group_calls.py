"""How the handlers of group requests reach the coordinator, and how answers of several shards become one."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Broker, RequestContext
from penstock.broker.group_coordinator import GroupRunner
from penstock.coordinator import requests
from penstock.coordinator.effects import Answer, Effect
from penstock.coordinator.group.requests import Eviction
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct

# KIP-430: read, delete, describe, describe configs, alter configs; and Kafka's number for "nobody asked".
_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_NOT_ASKED = -(2**31)

Method = Callable[[GroupShard, int, Any, requests.RequestContext, int], list[Effect]]


def caller(context: RequestContext) -> requests.RequestContext:
    """The host is written as Kafka's tools show it."""
    assert context.connection is not None
    host = context.connection.peer.rpartition(":")[0]
    return requests.RequestContext(context.version, context.client_id or "", f"/{host}")


async def ask(broker: Broker, context: RequestContext, group_id: str, method: Method, request: Any) -> Struct:
    """The answer of the shard that has the group. Raises Refused."""
    return await _ask_runner(broker.groups.shards.runner_of(group_id), context, method, request)


async def _ask_runner(runner: GroupRunner, context: RequestContext, method: Method, request: Any) -> Struct:
    who = caller(context)
    return await runner.handle(lambda shard, token, now_ms: method(shard, token, request, who, now_ms))


async def ask_each(
    broker: Broker,
    context: RequestContext,
    group_ids: Sequence[str],
    method: Method,
    share: Callable[[list[int]], Any],
    refuse: Callable[[int, ErrorCode], Struct],
    answers_of: Callable[[Struct], Sequence[Struct]],
) -> list[Struct]:
    """One answer for each of `group_ids`, in their order. `share` makes the request of one shard from the positions of
    its groups, `refuse` the answer for a group that has no coordinator here, `answers_of` the list in an answer."""
    results: list[Struct | None] = [None] * len(group_ids)
    by_runner: dict[GroupRunner, list[int]] = {}
    for position, group_id in enumerate(group_ids):
        try:
            by_runner.setdefault(broker.groups.shards.runner_of(group_id), []).append(position)
        except Refused as refused:
            results[position] = refuse(position, refused.code)
    asked = list(by_runner.items())
    found = await asyncio.gather(
        *(_ask_runner(runner, context, method, share(positions)) for runner, positions in asked),
        return_exceptions=True,
    )
    for (_, positions), answer in zip(asked, found, strict=True):
        if isinstance(answer, Refused):
            for position in positions:
                results[position] = refuse(position, answer.code)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for position, one in zip(positions, answers_of(answer), strict=True):
                results[position] = one
    return [result for result in results if result is not None]


def telling_evictions(describe: Method) -> Method:
    """Describes groups as `describe` does, and tells of each why it last put a member out: in `error_message`, where
    Kafka's clients look only if there is an error, and where Kafka has nothing to say if there is none."""

    def described(
        shard: GroupShard, token: int, request: Any, who: requests.RequestContext, now_ms: int
    ) -> list[Effect]:
        effects = describe(shard, token, request, who, now_ms)
        for answer in effects:
            if isinstance(answer, Answer):
                for group in answer.body.groups:
                    evictions = shard.evictions(group.group_id)
                    if evictions and not group.error_code:
                        group.error_message = _sentence_of(evictions[-1])
        return effects

    return described


def _sentence_of(eviction: Eviction) -> str:
    at = datetime.fromtimestamp(eviction.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"member {eviction.member_id} was put out at {at.replace('+00:00', 'Z')}: {eviction.reason}"


def tell_operations(groups: Sequence[Struct], request: Any) -> None:
    """Enters what the client may do with each group that was found, if it wants to know: all there is, for now."""
    is_asked = getattr(request, "include_authorized_operations", False)
    for group in groups:
        is_found = not getattr(group, "error_code", ErrorCode.none)
        group.authorized_operations = _GROUP_OPERATIONS if is_asked and is_found else _NOT_ASKED


def without_empty_topics(answer: Struct) -> Struct:
    """A topic that was named without partitions is not mentioned in the answer, as in Kafka."""
    answer.topics = [topic for topic in answer.topics if topic.partitions]
    return answer
