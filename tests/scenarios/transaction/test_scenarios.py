"""Transaction scenarios: each text file is a story of commands and what the coordinator did about them.

A block is a command, a line of dashes, and what came of it, up to the next empty line. To write down anew what comes
of the commands, run with PENSTOCK_REWRITE_SCENARIOS=1 and read the difference. `script.py` has the commands.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.transaction.script import Script

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path) -> None:
    script = Script()
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
