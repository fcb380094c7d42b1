"""A member of a group by kafka-python, as a process of its own: its threads stay out of the tests' process.

    python kafka_python_member.py JOURNAL BOOTSTRAP GROUP TOPIC

Lines of the journal: `A partition ...` for a new assignment, `R value` for a record. Commits and leaves at SIGTERM.
"""

import signal
import sys
import warnings

warnings.simplefilter("ignore", DeprecationWarning)

from kafka import KafkaConsumer  # noqa: E402


def main() -> None:
    journal_path, bootstrap, group_id, topic = sys.argv[1:]
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
    )
    share: list[int] = []
    with open(journal_path, "a", buffering=1) as journal:
        while not is_over:
            # It is given time: in kafka-python 3.0.12 a poll that ends while it joins loses the assignment, and no
            # heartbeat is sent any more.
            for records in consumer.poll(timeout_ms=2000).values():
                journal.writelines(f"R {record.value.decode()}\n" for record in records)
            assigned = sorted(part.partition for part in consumer.assignment())
            if assigned != share:
                share = assigned
                journal.write(" ".join(["A", *map(str, share)]) + "\n")
        consumer.commit()
        consumer.close()


if __name__ == "__main__":
    main()
