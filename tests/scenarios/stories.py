"""How a scenario is read: a block is a command, a line of dashes, and what came of it, up to the next empty line. To
write down anew what comes of the commands, run with PENSTOCK_REWRITE_SCENARIOS=1 and read the difference.
"""

import os
from pathlib import Path
from typing import Protocol


class Script(Protocol):
    def run(self, line: str) -> str:
        """Runs a command and tells what came of it."""


def check_story(path: Path, script: Script) -> None:
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
