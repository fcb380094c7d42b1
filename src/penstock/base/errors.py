"""Kafka's error codes, and the one exception by which cold-path code refuses a request."""

import sys

# kio imports hypothesis where it is installed, as it is for developers: half a second for nothing, in each process.
_IS_HIDDEN = "hypothesis" not in sys.modules
if _IS_HIDDEN:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
from kio.schema.errors import ErrorCode  # noqa: E402

if _IS_HIDDEN:
    del sys.modules["hypothesis"]

__all__ = ["ErrorCode", "Refused"]


class Refused(Exception):
    """A peer's mistake or a passing condition: an error code that says whether to retry, and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
