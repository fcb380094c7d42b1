"""The options of the source, as those of Spark's Kafka connector: a job moves over by changing the format's name.

Names do not depend on case. What starts with `kafka.` is a property of the client. What the connector refuses is
refused here too, in words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.client.cluster import EARLIEST, LATEST, ClientConfig, TopicPartition, config_from
from penstock.client.errors import ClientError
from penstock.client.fetching import FetchLimits
from penstock.pipeline.spark.offsets import BadOption, Offsets, parse_assignment, parse_offsets, parse_timestamps

if TYPE_CHECKING:
    from penstock.pipeline.spark.typed_options import TypedSourceOptions

_STRATEGIES = ("assign", "subscribe", "subscribepattern")
_REFUSED = {
    "auto.offset.reset": "set startingOffsets to 'earliest' or 'latest'; Spark keeps track of what was read",
    "key.deserializer": "keys are binary; cast or decode them with DataFrame operations",
    "value.deserializer": "values are binary; cast or decode them with DataFrame operations",
    "enable.auto.commit": "the source does not commit offsets; Spark's checkpoint has them",
    "interceptor.classes": "the source has no interceptors",
}
_TIME = re.compile(r"(-?\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_TIME_UNIT_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Subscription:
    """Exactly one of the three."""

    assigned: tuple[TopicPartition, ...] | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None

    def named_topics(self) -> list[str] | None:
        """None for a pattern."""
        if self.assigned is not None:
            return list(dict.fromkeys(each.topic for each in self.assigned))
        return None if self.topics is None else list(self.topics)


@dataclass(frozen=True)
class Boundary:
    """Where reading starts or ends: one place for all (EARLIEST, LATEST), offsets by partition, or times in ms."""

    everywhere: int | None = None
    offsets: Offsets | None = None
    times_ms: Offsets | None = None
    time_ms: int | None = None
    # What a start that is later than every record means: an error, or the end.
    is_latest_if_too_late: bool = False
    option: str = ""


@dataclass(frozen=True)
class SourceOptions:
    subscription: Subscription
    client: ClientConfig
    fetch: FetchLimits
    starting: Boundary
    ending: Boundary
    fails_on_data_loss: bool = True
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = 15 * 60_000
    includes_headers: bool = False
    offset_fetch_tries_max: int = 3
    offset_fetch_interval_ms: int = 1_000
    # Set where values are decoded by the schema registry.
    typed: "TypedSourceOptions | None" = None
    # As given, for messages.
    given: Mapping[str, str] = field(default_factory=dict, compare=False)


def source_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Raises BadOption."""
    given = {name.lower(): value for name, value in options.items()}
    subscription = _subscription(given)
    properties = client_properties(given)
    for name, instead in _REFUSED.items():
        if name in properties:
            raise BadOption(f"option kafka.{name} is not supported: {instead}")
    if is_streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in given:
                raise BadOption(f"{name} is for batch queries: a stream has no end")
    starting = _boundary(given, "starting", LATEST if is_streaming else EARLIEST)
    ending = _boundary(given, "ending", LATEST)
    if not is_streaming:
        _check_batch(starting, ending)
    return SourceOptions(
        subscription,
        client_config(properties),
        _fetch_limits(given, properties),
        starting,
        ending,
        fails_on_data_loss=boolean(given, "failOnDataLoss", True),
        partitions_min=_positive(given, "minPartitions"),
        records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
        offsets_per_trigger_max=_positive(given, "maxOffsetsPerTrigger"),
        offsets_per_trigger_min=_positive(given, "minOffsetsPerTrigger"),
        trigger_delay_ms_max=_duration_ms(given, "maxTriggerDelay", "15m"),
        includes_headers=boolean(given, "includeHeaders", False),
        offset_fetch_tries_max=_positive(given, "fetchOffset.numRetries") or 3,
        offset_fetch_interval_ms=_number(given, "fetchOffset.retryIntervalMs", 1_000),
        typed=typed_options(given),
        given=given,
    )


def typed_options(given: Mapping[str, str]) -> "TypedSourceOptions | None":
    """None without the option `schema`. Raises BadOption."""
    if "schema" not in given:
        return None
    # Most queries are without, and need not wait for an HTTP client to load.
    from penstock.pipeline.spark.typed_options import typed_source_options

    return typed_source_options(given, _subscription(given).named_topics())


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Those that start with `kafka.`, without it."""
    properties = {name[6:]: value for name, value in given.items() if name.startswith("kafka.")}
    if not properties.get("bootstrap.servers", "").strip():
        raise BadOption("option kafka.bootstrap.servers must name the cluster: HOST:PORT[,HOST:PORT...]")
    return properties


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    try:
        return config_from(properties)
    except ClientError as error:
        raise BadOption(f"kafka options: {error}") from error


def _subscription(given: Mapping[str, str]) -> Subscription:
    named = [name for name in _STRATEGIES if name in given]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        raise BadOption(f"say what to read with exactly one of assign, subscribe and subscribePattern; got {got}")
    value = given[named[0]].strip()
    if named[0] == "assign":
        return Subscription(assigned=tuple(parse_assignment(value)))
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))
        if not topics:
            raise BadOption("subscribe names no topic: give one or several, separated by commas")
        return Subscription(topics=topics)
    try:
        re.compile(value)
    except re.error as error:
        raise BadOption(f"subscribePattern '{value}' is not a regular expression: {error}") from error
    if not value:
        raise BadOption("subscribePattern is empty: give a regular expression that whole topic names match")
    return Subscription(pattern=value)


def _boundary(given: Mapping[str, str], side: str, default: int) -> Boundary:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise BadOption(f"startingOffsetsByTimestampStrategy is 'error' or 'latest'; got '{strategy}'")
    # An end that is later than every record is the end.
    is_latest = strategy == "latest" or side == "ending"
    if f"{side}timestamp" in given:
        option = f"{side}Timestamp"
        return Boundary(time_ms=_number(given, option, 0), is_latest_if_too_late=is_latest, option=option)
    if f"{side}offsetsbytimestamp" in given:
        option = f"{side}OffsetsByTimestamp"
        times_ms = parse_timestamps(given[option.lower()], option)
        return Boundary(times_ms=times_ms, is_latest_if_too_late=is_latest, option=option)
    option = f"{side}Offsets"
    text = given.get(option.lower())
    if text is None:
        return Boundary(everywhere=default, option=option)
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return Boundary(everywhere=EARLIEST if text.lower() == "earliest" else LATEST, option=option)
    return Boundary(offsets=parse_offsets(text, option), option=option)


def _check_batch(starting: Boundary, ending: Boundary) -> None:
    if starting.everywhere == LATEST or (starting.offsets and LATEST in starting.offsets.values()):
        raise BadOption("startingOffsets of a batch query cannot be latest: there would be nothing to read")
    if ending.everywhere == EARLIEST or (ending.offsets and EARLIEST in ending.offsets.values()):
        raise BadOption("endingOffsets of a batch query cannot be earliest: there would be nothing to read")
    for what, first, last in (
        ("offset", starting.offsets, ending.offsets),
        ("timestamp", starting.times_ms, ending.times_ms),
    ):
        if first is None or last is None:
            continue
        if first.keys() != last.keys():
            raise BadOption(f"{starting.option} and {ending.option} must name the same partitions")
        for partition, start in first.items():
            if start > last[partition] and start >= 0 and last[partition] >= 0:
                raise BadOption(
                    f"the starting {what} {start} of {partition} is after the ending one, {last[partition]}"
                )


def _fetch_limits(given: Mapping[str, str], properties: Mapping[str, str]) -> FetchLimits:
    isolation = properties.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise BadOption(f"kafka.isolation.level is read_committed or read_uncommitted; got '{isolation}'")
    limits = FetchLimits(
        wait_ms_max=_number(properties, "fetch.max.wait.ms", 500),
        read_committed=isolation == "read_committed",
        check_crcs=boolean(properties, "check.crcs", True),
        patience_ms=_number(given, "kafkaConsumer.pollTimeoutMs", 120_000),
    )
    asked = [_positive(properties, name) for name in ("max.partition.fetch.bytes", "fetch.max.bytes")]
    sizes = [size for size in asked if size is not None]
    return limits._replace(bytes_max=min(sizes)) if sizes else limits


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise BadOption(f"{name} is true or false; got '{value}'")
    return value.strip().lower() == "true"


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name.lower())
    if value is None:
        return default
    try:
        return int(value.strip())
    except ValueError as error:
        raise BadOption(f"{name} is a whole number; got '{value}'") from error


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in given:
        return None
    number = _number(given, name, 0)
    if number <= 0:
        raise BadOption(f"{name} must be positive; got {number}")
    return number


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """Spark's time strings: 15m, 10s, 500ms; a bare number is in ms."""
    text = given.get(name.lower(), default).strip()
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadOption(f"{name} is a time such as 15m, 10s or 500ms; got '{text}'")
    return int(int(found.group(1)) * _TIME_UNIT_MS[(found.group(2) or "ms").lower()])
