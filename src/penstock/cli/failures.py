"""What a person sees when something goes wrong: one sentence, an exit code, never a stack trace."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

EXIT_FAILED = 1
EXIT_USAGE = 2


class Failed(Exception):
    """The command did not do what was asked. The message says what happened, why, and what to do."""

    exit_code = EXIT_FAILED


class Misused(Failed):
    """The command line itself makes no sense."""

    exit_code = EXIT_USAGE


def error_of(exception: "KafkaException") -> "KafkaError":
    error: KafkaError = exception.args[0]
    return error


def sentence_of(error: "KafkaError") -> str:
    """librdkafka's or the broker's words, without librdkafka's decorations."""
    text = error.str().removeprefix("Unable to produce message: ").removeprefix("Broker: ").removeprefix("Local: ")
    text = text.strip().rstrip(".")
    text = text or error.name().lower().replace("_", " ")
    return text[0].lower() + text[1:] if text[1:2].islower() else text
