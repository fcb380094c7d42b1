"""Options of the source and the sink: what they mean, and what is said of mistakes."""

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock.client.cluster import EARLIEST, LATEST, TopicPartition
from penstock.client.producing import ProducerId
from penstock.pipeline.spark.decisions import Decision, TaskTransaction, decoded
from penstock.pipeline.spark.exactly_once import Attempt, is_of_sink, transactional_id
from penstock.pipeline.spark.offsets import BadOption, from_json, to_json
from penstock.pipeline.spark.options import Boundary, SourceOptions, Subscription, source_options
from penstock.pipeline.spark.predicates import bounds_of
from penstock.pipeline.spark.ranges import OffsetRange
from penstock.pipeline.spark.sink_options import sink_options

CLUSTER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
VALUE = StructType([StructField("value", StringType())])


def parsed_from(options: dict[str, str], *, is_streaming: bool = True) -> SourceOptions:
    return source_options({**CLUSTER, "subscribe": "t", **options}, is_streaming=is_streaming)


def parsed(**options: str) -> SourceOptions:
    return parsed_from(options)


def test_defaults_are_the_connectors() -> None:
    stream, batch = parsed(), parsed_from({}, is_streaming=False)
    assert stream.starting.everywhere == LATEST
    assert batch.starting.everywhere == EARLIEST
    assert batch.ending.everywhere == LATEST
    assert stream.fails_on_data_loss
    assert not stream.includes_headers
    assert not stream.fetch.read_committed
    assert stream.trigger_delay_ms_max == 15 * 60_000
    assert stream.fetch.patience_ms == 120_000


def test_names_do_not_depend_on_case_and_times_win_over_offsets() -> None:
    given = {"STARTINGOFFSETS": "earliest", "startingTimestamp": "1000", "MaxOffsetsPerTrigger": "7"}
    options = parsed_from({**given, "MAXTRIGGERDELAY": "10s"})
    assert options.starting.time_ms == 1000
    assert options.offsets_per_trigger_max == 7
    assert options.trigger_delay_ms_max == 10_000
    by_time = parsed(startingOffsetsByTimestamp='{"t": {"0": 5}}', startingOffsets="latest")
    assert by_time.starting.times_ms == {TopicPartition("t", 0): 5}
    assert not by_time.starting.is_latest_if_too_late
    assert parsed(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").starting.is_latest_if_too_late


def test_each_way_to_name_topics() -> None:
    assert parsed(subscribe="a, b,,a").subscription == Subscription(topics=("a", "b"))
    for given, expected in (
        ({"assign": '{"a": [1, 0]}'}, Subscription(assigned=(TopicPartition("a", 0), TopicPartition("a", 1)))),
        ({"subscribePattern": "a.*"}, Subscription(pattern="a.*")),
    ):
        assert source_options({**CLUSTER, **given}, is_streaming=True).subscription == expected


def test_client_properties_are_passed_through() -> None:
    options = parsed_from(
        {
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "16000000",
            "kafka.fetch.max.bytes": "64000000",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "ann",
        }
    )
    assert options.fetch.read_committed
    assert options.fetch.bytes_max == 16_000_000
    assert options.client.security.uses_tls
    assert options.client.security.username == "ann"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"assign": "{}"}, "exactly one of"),
        ({"subscribe": " , "}, "names no topic"),
        ({"kafka.bootstrap.servers": " "}, r"kafka\.bootstrap\.servers must name"),
        ({"kafka.enable.auto.commit": "true"}, "does not commit offsets"),
        ({"kafka.key.deserializer": "x"}, "keys are binary"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxOffsetsPerTrigger": "many"}, "is a whole number"),
        ({"failOnDataLoss": "maybe"}, "is true or false"),
        ({"maxTriggerDelay": "soon"}, "is a time such as 15m"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "below 0 there are -1 and -2 only"),
        ({"startingOffsets": '{"t": [1]}'}, "startingOffsets is"),
        ({"kafka.isolation.level": "none"}, "isolation.level is"),
        ({"kafka.security.protocol": "SSLISH"}, "security.protocol is one of"),
    ],
)
def test_mistakes_of_streams_are_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parsed_from(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"1": 5}}'}, "the same partitions"),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'}, "after the ending one"),
    ],
)
def test_mistakes_of_batches_are_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parsed_from(options, is_streaming=False)


def test_offsets_have_one_text_whatever_their_order() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert str(to_json(offsets)) == "{'a': {'0': 3}, 'b': {'9': 2, '10': 1}}"
    assert from_json(to_json(offsets)) == offsets


def test_predicates_become_bounds() -> None:
    predicates: list[Filter] = [
        EqualTo(("topic",), "t"),
        In(("partition",), (1, 2, None)),
        GreaterThan(("offset",), 4),
        LessThanOrEqual(("offset",), 9),
        IsNotNull(("offset",)),
        Not(EqualTo(("partition",), 1)),
        GreaterThanOrEqual(("value", "inner"), 3),
        LessThan(("timestamp",), 3),
    ]
    bounds = bounds_of(predicates)
    assert bounds.admits(TopicPartition("t", 2))
    assert not bounds.admits(TopicPartition("t", 3))
    assert not bounds.admits(TopicPartition("u", 2))
    assert bounds.time_ms_min is None
    whole = OffsetRange(TopicPartition("t", 2), 0, 100)
    assert bounds.cut(whole) == whole._replace(start=5, end=10)
    assert bounds_of([In(("offset",), ())]).cut(whole).size <= 0
    assert bounds_of([EqualTo(("partition",), 1), EqualTo(("partition",), 2)]).partitions == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.acks": "2"}, "kafka.acks is"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type is one of"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.transactional.id": "x"}, "set the option exactlyOnce"),
        ({"exactlyOnce": "true"}, "needs the option sinkId"),
        ({"exactlyOnce": "true", "sinkId": "a/b"}, "sinkId is made of"),
        ({"exactlyOnce": "true", "sinkId": "a", "kafka.acks": "1"}, "exactlyOnce needs kafka.acks=all"),
    ],
)
def test_mistakes_of_the_sink_are_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        sink_options({**CLUSTER, "topic": "t", **options}, VALUE)


def test_columns_of_the_sink_are_checked() -> None:
    wrong = StructType([*VALUE.fields, StructField("partition", LongType())])
    with pytest.raises(BadOption, match="column partition is bigint; the sink takes int there"):
        sink_options({**CLUSTER, "topic": "t"}, wrong)
    # The option wins: what the column is does not matter then.
    other = StructType([*VALUE.fields, StructField("topic", IntegerType())])
    assert sink_options({**CLUSTER, "topic": " t "}, other).topic == "t"
    assert sink_options({**CLUSTER, "topic": "t", "exactlyOnce": "true", "sinkId": "a"}, VALUE).sink_id == "a"


def test_ids_of_tasks_are_those_of_their_sink_only() -> None:
    id_ = transactional_id("a", Attempt("q", 7, 3, 1))
    assert is_of_sink("a", id_)
    assert not is_of_sink("a-1", id_)
    assert not is_of_sink("a", "a")
    assert not is_of_sink("a", transactional_id("a.b", Attempt("q", 7, 3, 1)))
    assert not is_of_sink("a.b", transactional_id("a-b", Attempt("q", 7, 3, 1)))


def test_decisions_are_kept_as_they_are() -> None:
    decision = Decision("query", 12, False, (TaskTransaction("a/0/1/0", ProducerId(5, 6)),))
    assert decoded(decision.encoded()) == decision
    # As the first version wrote it: checkpoints and decisions outlive an update.
    kept = b'{"format": 1, "query": "q", "batch": 3, "state": "done", "transactions": [["s/1/0/0", 7, 2]]}'
    assert decoded(kept) == Decision("q", 3, True, (TaskTransaction("s/1/0/0", ProducerId(7, 2)),))
    with pytest.raises(ValueError, match="update penstock"):
        decoded(kept.replace(b'"format": 1', b'"format": 2'))


def test_a_boundary_without_options_is_a_place() -> None:
    assert parsed().ending == Boundary(everywhere=LATEST, option="endingOffsets")
