"""Kafka's error codes, and the one exception by which cold-path code refuses a request."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "Refused"]


class Refused(Exception):
    """A peer's mistake or a passing condition: an error code that says whether to retry, and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
