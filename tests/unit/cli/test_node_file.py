"""The file of `penstock node`: what it means, and that every mistake in it is named."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.failures import Failed
from penstock.cli.node_file import BadNodeFile, parse_node_file
from penstock.cli.program import app

WHOLE = """
node_id = 2
roles = ["controller", "broker"]
listen = "0.0.0.0:9092"
advertised = "two.example:9092"
voters = ["10@ten.example:9092", "2@two.example:9092", "3@[fd00::3]:9092"]
rack = "room-a"
data = "/var/lib/penstock"
metrics_port = 9644

[settings]
"num.partitions" = 6
"auto.create.topics.enable" = false
"""
SMALL = 'node_id = 1\nlisten = "127.0.0.1:9092"\ndata = "d"\n'


def test_everything_that_a_file_says_reaches_the_node() -> None:
    found = parse_node_file(WHOLE, "f")
    assert (found.node_id, found.host, found.port, found.data_directory) == (2, "0.0.0.0", 9092, "/var/lib/penstock")
    assert found.metrics_port == 9644
    assert not found.is_local
    assert found.overrides == {
        "process.roles": "controller,broker",
        "advertised.listeners": "PLAINTEXT://two.example:9092",
        "controller.quorum.voters": "2@two.example:9092,3@[fd00::3]:9092,10@ten.example:9092",
        "broker.rack": "room-a",
        "num.partitions": "6",
        "auto.create.topics.enable": "false",
    }


def test_the_order_of_voters_makes_no_other_cluster() -> None:
    other = WHOLE.replace('"10@ten.example:9092", "2@two.example:9092"', '"2@two.example:9092", "10@ten.example:9092"')
    assert other != WHOLE
    assert parse_node_file(other, "f") == parse_node_file(WHOLE, "f")


@pytest.mark.parametrize("roles", [["broker"], ["controller"], ["broker", "controller"]])
def test_whatever_its_roles_a_node_may_join_a_cluster(roles: list[str]) -> None:
    found = parse_node_file(SMALL + f'roles = {roles}\njoin = ["a:1", "b:2"]', "f")
    assert found.overrides == {
        "process.roles": ",".join(roles),
        "controller.quorum.bootstrap.servers": "a:1,b:2",
    }


def test_three_lines_are_a_node() -> None:
    assert parse_node_file(SMALL, "f").is_local


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node_id", "is no TOML"),
        ("", "node_id is missing"),
        (SMALL.replace("1\n", "'one'\n"), "node_id must be a whole number"),
        (SMALL.replace("1\n", "true\n"), "node_id must be a whole number"),
        (SMALL.replace("9092", "http"), "listen must be HOST:PORT, not '127.0.0.1:http'"),
        (SMALL + 'lissten = "x"', "did you mean listen?"),
        (SMALL + '"node.id" = 3', "go below [settings]"),
        (SMALL + 'roles = ["king"]', "there is no role 'king'"),
        (SMALL + 'roles = ["controller"]', "needs voters, itself"),
        (SMALL + "roles = []", "roles is empty"),
        (SMALL + 'roles = ["broker"]', "needs voters"),
        (SMALL + 'roles = ["broker"]\nvoters = ["1@a:1"]', "node 1 is in voters"),
        (SMALL + 'voters = ["2@a:1"]', "is a controller, but not in voters"),
        (SMALL + 'voters = ["1@a:1", "1@b:1"]', "names a node twice"),
        (SMALL + 'voters = ["a:1"]', "a voter is ID@HOST:PORT"),
        (SMALL + 'join = ["1@a"]', "join has HOST:PORT, not '1@a'"),
        (SMALL + 'join = ["a:1"]\nvoters = ["1@a:1"]', "voters and join exclude each other"),
        (SMALL + '[settings]\n"controller.quorum.bootstrap.servers" = "a:1"', "is said by the key join"),
        (SMALL.replace("127.0.0.1", "0.0.0.0"), "no client can connect"),
        (SMALL + '[settings]\n"broker.rack" = "a"', "is said by the key rack"),
        (SMALL + "[settings]\nnum.partitions = 3", "settings must be a table"),
    ],
)
def test_mistakes_are_named(text: str, complaint: str) -> None:
    with pytest.raises(BadNodeFile) as refusal:
        parse_node_file(text, "f.toml")
    assert complaint in str(refusal.value)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(BadNodeFile) as refusal:
        parse_node_file("node_id = -1\nrak = 'a'", "f.toml")
    for complaint in ("node_id must be", "did you mean rack?", "listen is missing", "data is missing"):
        assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "exit_code", "complaint"),
    [
        (SMALL.replace("127.0.0.1", "10.0.0.1"), 2, "say --insecure"),
        (SMALL + '[settings]\n"num.partitons" = 3', 1, "Did you mean num.partitions?"),
        (SMALL + '[settings]\n"num.partitions" = "few"', 1, "num.partitions cannot be 'few'"),
    ],
)
def test_a_node_that_may_not_run_says_why(tmp_path: Path, text: str, exit_code: int, complaint: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    failure = CliRunner().invoke(app, ["node", "--config", str(file)]).exception
    assert isinstance(failure, Failed)
    assert failure.exit_code == exit_code
    assert complaint in str(failure)


def test_a_file_can_be_checked_without_running_it(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(WHOLE)
    result = CliRunner().invoke(app, ["node", "--config", str(file), "--insecure", "--check"])
    assert result.exit_code == 0
    assert "describes node 2" in result.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    failure = CliRunner().invoke(app, ["node", "--config", str(tmp_path / "none.toml")]).exception
    assert isinstance(failure, Failed)
    assert "cannot read" in str(failure)
