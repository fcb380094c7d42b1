"""Exactly once while everything dies. `PENSTOCK_COPIED_RECORDS=200000` makes the long version."""

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeBroker
from tests.e2e.copying import SOURCE, TARGET, TRANSACTION_TIMEOUT_MS, check_copy, seconds_max

RECORDS = int(os.environ.get("PENSTOCK_COPIED_RECORDS", "6000"))
COPIER = Path(__file__).parent / "transactional_copier.py"
COPIERS = 3


@pytest.mark.slow
@pytest.mark.timeout(seconds_max(RECORDS) + 60)
def test_a_copy_in_transactions_has_every_record_once_whoever_dies(make_broker: MakeBroker) -> None:
    node = make_broker()
    commands = [
        [
            *(sys.executable, str(COPIER), node.bootstrap, SOURCE, TARGET),
            *("copiers", f"copier-{number}", str(TRANSACTION_TIMEOUT_MS)),
        ]
        for number in range(COPIERS)
    ]
    check_copy(node, commands, RECORDS, disturbances=max(12, RECORDS // 2000))
