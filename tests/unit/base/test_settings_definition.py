import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base.settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, InvalidValue, Kind, Setting
from penstock.base.settings.definition import InvalidConfig
from penstock.base.settings.topics import check_topic_overrides

EVERY_SETTING = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values(), *GROUP_SETTINGS.values()]


def complaint(name: str, text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        check_topic_overrides({name: text})
    return str(caught.value)


def test_every_default_is_a_value_that_its_setting_takes() -> None:
    for setting in EVERY_SETTING:
        value = setting.parsed_default()
        assert setting.default is None or setting.parse(setting.text(value) or "") == value, setting.name


def test_every_setting_is_documented_in_a_sentence() -> None:
    for setting in EVERY_SETTING:
        assert setting.doc.endswith((".", "...")), setting.name


def test_every_broker_setting_behind_a_topic_or_group_setting_is_declared() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
        for synonym in setting.synonyms:
            assert synonym.name in BROKER_SETTINGS, (setting.name, synonym)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_the_way_to_text_and_back(number: int) -> None:
    setting = Setting("a.long", Kind.LONG, None, "A long.")
    assert setting.parse(setting.text(number) or "") == number


@given(st.text())
@example("e+")
def test_any_text_is_parsed_or_refused_and_nothing_else(text: str) -> None:
    for kind in (Kind.BOOLEAN, Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE, Kind.LIST, Kind.STRING):
        setting = Setting("a.setting", kind, None, "A setting.")
        try:
            value = setting.parse(text)
        except InvalidValue:
            continue
        assert setting.parse(setting.text(value) or "") == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            "max.message.bytes",
            "2147483648",
            "Invalid value 2147483648 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "compression.gzip.level",
            "10",
            "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("nope", "1", "Unknown topic config name: nope"),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_bad_values_are_refused_in_kafkas_words(name: str, text: str, expected: str) -> None:
    assert complaint(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 1000 ", 1000),
        ("retention.ms", "+5", 5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "delete , compact", ("delete", "compact")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
    ],
)
def test_good_values_are_typed(name: str, text: str, value: object) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(InvalidConfig, match=r"conflict topic config setting min\.compaction\.lag\.ms \(2000\)"):
        check_topic_overrides({"min.compaction.lag.ms": "2000", "max.compaction.lag.ms": "1000"})


def test_a_password_is_sensitive() -> None:
    assert Setting("a.secret", Kind.PASSWORD, None, "A secret.").is_sensitive
