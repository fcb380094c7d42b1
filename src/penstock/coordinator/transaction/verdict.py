"""What a request comes to, given the state of its transactional id."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.coordinator.transaction.records import Transaction
from penstock.protocol.messages import Struct


class Verdict(NamedTuple):
    """The state that is entered first, if any, and the answer; without one the same request is to be decided again as
    soon as no end is under way."""

    answer: Struct | None
    entered: Transaction | None = None


Decide = Callable[[Transaction | None, int], Verdict]
"""The verdict on a state (None: the id is not known) at a time. It is never asked while an end is under way."""
