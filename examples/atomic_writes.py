"""All or nothing over several topics: each transfer is a record in two topics, and readers see both or neither.

python examples/atomic_writes.py withdrawals deposits --count 10 --abort-every 3
penstock consume deposits -X isolation.level=read_committed        # the same transfers as in withdrawals
"""

import argparse
import os

from confluent_kafka import Producer

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("withdrawals")
arguments.add_argument("deposits")
arguments.add_argument("--count", type=int, default=10)
arguments.add_argument("--abort-every", type=int, default=0, metavar="N", help="take back every Nth transfer")
options = arguments.parse_args()

producer = Producer(
    {
        "bootstrap.servers": os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092"),
        "transactional.id": "transfers",
        "linger.ms": 0,
    }
)
producer.init_transactions()
for number in range(1, options.count + 1):
    producer.begin_transaction()
    producer.produce(options.withdrawals, f"transfer-{number}")
    producer.produce(options.deposits, f"transfer-{number}")
    # Written, and in the log; whether anybody sees it is decided now.
    producer.flush()
    if options.abort_every and number % options.abort_every == 0:
        producer.abort_transaction()
        print("aborted", f"transfer-{number}")
    else:
        producer.commit_transaction()
        print("committed", f"transfer-{number}")
