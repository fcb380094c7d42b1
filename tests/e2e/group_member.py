"""A member of a group as a process that can be killed and stopped: reads, writes down what it got, then commits.

    python group_member.py JOURNAL SETTINGS-AS-JSON TOPIC

One line per event in the journal, with the monotonic time in ns, written before the next step:
    TIME R partition offset value       a record was handed over
    TIME C partition offset             the offset, of what comes next, was committed
    TIME F partition offset error       it was not
    TIME A partition ...                partitions were assigned
    TIME V partition ...                partitions were taken away
Ends cleanly at SIGTERM.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main() -> None:
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    settings, topic = json.loads(sys.argv[2]), sys.argv[3]
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)

    def write(*lines: str) -> None:
        if lines:
            now_ns = time.monotonic_ns()
            os.write(journal, "".join(f"{now_ns} {line}\n" for line in lines).encode())

    def assigned(_: Any, partitions: list[TopicPartition]) -> None:
        write(" ".join(["A", *(str(one.partition) for one in partitions)]))

    def taken_away(_: Any, partitions: list[TopicPartition]) -> None:
        write(" ".join(["V", *(str(one.partition) for one in partitions)]))

    consumer = Consumer(settings)
    consumer.subscribe([topic], on_assign=assigned, on_revoke=taken_away, on_lost=taken_away)
    while not is_over:
        messages = [message for message in consumer.consume(50, timeout=0.05) if message.error() is None]
        write(*(f"R {one.partition()} {one.offset()} {(one.value() or b'').decode()}" for one in messages))
        ends = {one.partition() or 0: (one.offset() or 0) + 1 for one in messages}
        if not ends:
            continue
        offsets = [TopicPartition(topic, index, offset) for index, offset in ends.items()]
        try:
            kept = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            # Put out of the group, or the broker is away: what was read will be read again by whoever comes.
            write(*(f"F {one.partition} {one.offset} {problem.args[0].code()}" for one in offsets))
            continue
        write(*(f"C {one.partition} {one.offset}" for one in kept if one.error is None))
    consumer.close()


if __name__ == "__main__":
    main()
