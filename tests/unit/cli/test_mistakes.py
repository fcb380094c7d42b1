"""Mistakes that are seen before any broker is asked."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.failures import Failed
from penstock.cli.program import app


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (["produce", "x", "-f", "%k%v"], 2, "nothing says where the key ends"),
        (["produce", "x", "--acks", "2"], 2, "--acks takes all, 1 or 0"),
        (["produce", "x", "-z", "brotli"], 2, "--compression takes one of none, gzip"),
        (["produce", "x", "-H", "nonsense"], 2, "-H takes NAME=VALUE"),
        (["produce", "x", "--partitioner", "dice"], 2, "there is no partitioner 'dice'"),
        (["produce", "x", "--file", "/no/such/file"], 1, "cannot read /no/such/file"),
        (["consume", "x", "-o", "yesterday"], 2, "'yesterday' is not an offset"),
        (["consume", "x", "-f", "%q"], 2, "is not an escape"),
        (["consume", "x", "-p", "first"], 2, "not a list of partitions"),
        (["topic", "list", "("], 2, "is not a regular expression"),
        (["topic", "create", "x", "-c", "nonsense"], 2, "-c takes NAME=VALUE"),
        (["topic", "alter", "x"], 2, "nothing to change"),
        (["topic", "trim", "x"], 2, "say how far to trim"),
        (["topic", "trim", "x", "--all", "--offset", "3"], 2, "say how far to trim"),
        (["topic", "trim", "x", "--before", "yesterday"], 2, "'yesterday' is not a time"),
        (["topic", "list", "-X", "nonsense"], 2, "-X takes NAME=VALUE"),
        (["topic", "list", "--brokers", "host:port"], 2, "'host:port' is not HOST:PORT"),
        (["config", "list", "--topic", "x", "--node", "1"], 2, "--topic and --node exclude each other"),
        (["bench", "produce", "--acks", "none"], 2, "--acks takes all, 1 or 0"),
        (["log", "dump", "/no/such/file"], 1, "there is no /no/such/file"),
        (["log", "dump", __file__], 1, "is no file of a log"),
        (["cluster", "reassign", "--cancel", "--status"], 2, "exclude each other"),
        (["cluster", "reassign", "--to", "one"], 2, "--to takes node ids"),
        (["up", "-X", "nonsense"], 2, "-X takes NAME=VALUE"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(arguments: list[str], exit_code: int, complaint: str) -> None:
    failure = CliRunner().invoke(app, arguments).exception
    assert isinstance(failure, Failed)
    assert failure.exit_code == exit_code
    assert complaint in str(failure)


@pytest.mark.parametrize("arguments", [["topic", "nonsense"], ["topic", "create"], ["consume", "x", "-n", "-1"]])
def test_what_typer_refuses_ends_with_two_as_well(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_directory_without_logs_is_no_silent_success(tmp_path: Path) -> None:
    failure = CliRunner().invoke(app, ["log", "dump", str(tmp_path)]).exception
    assert isinstance(failure, Failed)
    assert "holds no files of a log" in str(failure)
