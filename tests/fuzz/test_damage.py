"""Damaged files, with fixed seeds; `make fuzz` goes on with others. A seed that once found something stays."""

import random

import pytest

from tests.fuzz.files import try_damaged_log
from tests.fuzz.metadata import try_damaged_metadata

# 371: an offset beyond all bounds in a batch whose index had to be made anew.
# 2559: an index that points before the file.
LOG_SEEDS = (371, 2559, *range(2000, 2150))
# 46: a damaged batch in the middle of a metadata log that was closed cleanly.
METADATA_SEEDS = (46, *range(100, 115))


@pytest.mark.parametrize("seed", LOG_SEEDS)
def test_a_log_with_damaged_files_comes_up_or_says_why_not(seed: int) -> None:
    try_damaged_log(random.Random(seed))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", METADATA_SEEDS)
def test_a_node_with_damaged_metadata_starts_with_all_its_topics_or_says_why_not(seed: int) -> None:
    try_damaged_metadata(random.Random(seed))
