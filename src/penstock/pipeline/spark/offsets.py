"""Offsets by topic and partition, as the JSON of Spark's Kafka connector: {"topic": {"0": 23, "1": -1}}.

-2 stands for earliest and -1 for latest. The text is the same for the same offsets: Spark compares it.
"""

import json
from collections.abc import Mapping
from typing import Any

from penstock.client.cluster import EARLIEST, LATEST, TopicPartition

Offsets = dict[TopicPartition, int]


class BadOption(ValueError):
    """An option of the source or the sink is wrong; the message says which, why, and what to do."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    tree: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        tree.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return tree


def from_json(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, partitions in tree.items()
        for index, offset in partitions.items()
    }


def parse_offsets(text: str, option: str) -> Offsets:
    """What a person wrote. Raises BadOption."""
    example = f'{option} is "earliest", "latest" or JSON such as {{"topicA": {{"0": 23, "1": -1}}}}'
    tree = _json(text, example)
    try:
        offsets = from_json(tree)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadOption(f"{example}; got '{text}'") from error
    for partition, offset in offsets.items():
        if offset < 0 and offset not in (EARLIEST, LATEST):
            raise BadOption(f"{option}: the offset of {partition} is {offset}; below 0 there are -1 and -2 only")
    return offsets


def parse_timestamps(text: str, option: str) -> Offsets:
    example = f'{option} is JSON such as {{"topicA": {{"0": 1000, "1": 2000}}}}, in ms since 1970'
    tree = _json(text, example)
    try:
        return from_json(tree)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadOption(f"{example}; got '{text}'") from error


def parse_assignment(text: str) -> list[TopicPartition]:
    example = 'assign is JSON such as {"topicA": [0, 1], "topicB": [2, 4]}'
    tree = _json(text, example)
    try:
        return sorted(TopicPartition(topic, int(index)) for topic, indexes in tree.items() for index in indexes)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadOption(f"{example}; got '{text}'") from error


def _json(text: str, example: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise BadOption(f"{example}; got '{text}'") from error
    if not isinstance(tree, dict) or not tree:
        raise BadOption(f"{example}; got '{text}'")
    return tree
