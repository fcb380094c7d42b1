"""Scenarios: each text file is a story of commands and what a core did about them.

A block is a command, a line of dashes, and what came of it, up to the next empty line. To write down anew what comes
of the commands, run with PENSTOCK_REWRITE_SCENARIOS=1 and read the difference. Each folder's `script.py` has its
commands.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.scenarios.controller.script import Script as ControllerScript
from tests.scenarios.group.script import Script as GroupScript
from tests.scenarios.raft.script import Script as RaftScript
from tests.scenarios.replication.script import Script as ReplicationScript
from tests.scenarios.transaction.script import Script as TransactionScript


class Script(Protocol):
    def run(self, line: str) -> str:
        """Runs a command and tells what came of it."""


SCRIPTS: dict[str, Callable[[], Script]] = {
    "controller": ControllerScript,
    "group": GroupScript,
    "raft": RaftScript,
    "replication": ReplicationScript,
    "transaction": TransactionScript,
}


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.glob("*/*.txt")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_story_goes_as_it_is_told(path: Path) -> None:
    script = SCRIPTS[path.parent.name]()
    told = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines[: lines.index("----")] if line not in comments] if "----" in lines else []
        outcome = [script.run(command) for command in commands]
        told.append("\n".join([*comments, *commands, *(["----", *outcome] if commands else [])]))
    story = "\n\n".join(told) + "\n"
    if os.environ.get("PENSTOCK_REWRITE_SCENARIOS"):
        path.write_text(story)
    assert story == path.read_text()
