"""Mistakes in `penstock group` that are seen before any broker is asked."""

import pytest
from typer.testing import CliRunner

from penstock.cli.failures import Failed
from penstock.cli.program import app

WHERE_TO = "say where to: one of --to-earliest, --to-latest"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (["list", "--state", "happy"], 2, "there is no state 'happy': --state takes Empty, PreparingRebalance"),
        (["list", "--type", "club"], 2, "there is no type 'club': --type takes classic, consumer"),
        (["seek", "g"], 2, "say where to: one of --to WHERE, --to-file FILE"),
        (["seek", "g", "--to", "end", "--to-file", "x"], 2, "say where to: one of --to WHERE, --to-file FILE"),
        (["seek", "g", "--to", "yesterday"], 2, "'yesterday' is no place to seek to"),
        (["seek", "g", "--to-file", "/no/such/file"], 1, "cannot read /no/such/file"),
        (["seek", "g", "--from-file", __file__], 2, "not TOPIC PARTITION OFFSET"),
        (["seek", "g", "--to", "end", "--topics", "t:first"], 2, "not a list of partitions"),
        (["reset", "g"], 2, WHERE_TO),
        (["reset", "g", "--to-earliest", "--to-offset", "3"], 2, WHERE_TO),
        (["reset", "g", "--to-datetime", "yesterday"], 2, "is no place to seek to"),
        (["reset", "g", "--to-latest", "--dry-run", "--execute"], 2, "--dry-run and --execute exclude each other"),
        (["reset", "g", "--to-latest", "--topic", "t", "--all-topics"], 2, "--topic and --all-topics exclude"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(arguments: list[str], exit_code: int, complaint: str) -> None:
    failure = CliRunner().invoke(app, ["group", *arguments]).exception
    assert isinstance(failure, Failed)
    assert failure.exit_code == exit_code
    assert complaint in str(failure)


@pytest.mark.parametrize("arguments", [["describe"], ["delete"], ["reset", "g", "--to-offset", "-1"]])
def test_what_typer_refuses_ends_with_two_as_well(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["group", *arguments]).exit_code == 2
