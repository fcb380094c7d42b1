from pathlib import Path

import pytest

from tests.scenarios.controller.script import Script
from tests.scenarios.stories import check_story


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path) -> None:
    check_story(path, Script())
