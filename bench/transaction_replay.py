"""Transactions as fast as the broker ends them: a pre-encoded batch and EndTxn in turn, a producer for each connection.

What a Java client of transaction version 2 sends (KIP-890): a transaction begins with its first batch, and every end
gives the producer another epoch, which is written into both requests, with the batch's CRC. Answers that ask for
patience, since the markers of the transaction before are still under way, are asked again.

python -m bench.transaction_replay '{"port": 9092, ...}'     prints {"commits": ..., "seconds": ..., "retries": ...}
"""

import json
import sys
from dataclasses import asdict, dataclass
from struct import Struct as Packer
from typing import Any

from crc32c import crc32c

from bench import replay, wire
from penstock.base.errors import ErrorCode
from penstock.protocol.batch import CRC_START, TRANSACTIONAL
from penstock.protocol.messages import Struct

_END_TXN, _END_TXN_VERSION = 26, 5
_LENGTH = Packer(">i")
_CRC, _CRC_AT = Packer(">I"), 17
_PRODUCER = Packer(">qh")
_PRODUCER_AT = 43
# Neither is in any other part of the requests.
_MARK = _PRODUCER.pack(0x7A5C3E1F12345678, 0x1234)
_NOT_YET = (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)


@dataclass(frozen=True)
class TransactionReplay:
    port: int
    topic: str
    partitions: int
    producers: int
    records_per_transaction: int
    record_bytes: int
    transactions_per_producer: int


class TransactionStream:
    """One producer: a batch, its answer, the end, its answer, and again."""

    def __init__(self, plan: TransactionReplay, number: int) -> None:
        transactional_id = f"{plan.topic}-{number}"
        with wire.Connection(plan.port) as connection:
            self._producer = wire.init_producer_id(connection, transactional_id)
        producer_id, epoch = _PRODUCER.unpack(_MARK)
        batch = wire.record_batch(
            plan.records_per_transaction, plan.record_bytes, producer_id, epoch, 0, attributes=TRANSACTIONAL
        )
        request = wire.produce_request(plan.topic, {number % plan.partitions: batch}, acks=-1)
        request.transactional_id = transactional_id
        self._produce = wire.request_frame(wire.PRODUCE, wire.PRODUCE_VERSION, request)
        self._batch_start = self._produce.index(batch)
        self._batch_end = self._batch_start + len(batch)
        end = Struct(transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True)
        self._end = wire.request_frame(_END_TXN, _END_TXN_VERSION, end)
        self._end_producer_at = self._end.index(_MARK)
        self._left = plan.transactions_per_producer
        self._is_ending = False
        self._is_waiting = False
        self._received = bytearray()
        self.retries = 0
        self.socket = replay.connect(plan.port)
        self._write_producer()

    def wants_to_write(self) -> bool:
        return not self._is_waiting and self._left > 0

    def is_done(self) -> bool:
        return self._left == 0

    def write(self) -> None:
        frame = self._end if self._is_ending else self._produce
        # At most 12 kB, into an empty buffer: the kernel takes them whole.
        if self.socket.send(frame) != len(frame):
            raise replay.BadAnswer("the connection took only part of a request")
        self._is_waiting = True

    def read(self) -> None:
        received = self.socket.recv(64 * 1024)
        if not received:
            raise replay.BadAnswer("the broker closed the connection")
        self._received += received
        if len(self._received) < 4 or len(self._received) < 4 + _LENGTH.unpack_from(self._received)[0]:
            return
        payload = bytes(self._received[4:])
        self._received.clear()
        self._is_waiting = False
        if self._is_ending:
            self._on_end(wire.response_body(_END_TXN, _END_TXN_VERSION, payload))
        else:
            (answer,) = wire.response_body(wire.PRODUCE, wire.PRODUCE_VERSION, payload).responses[0].partition_responses
            if not self._must_ask_again(answer.error_code):
                self._is_ending = True

    def _on_end(self, answer: Any) -> None:
        if self._must_ask_again(answer.error_code):
            return
        self._producer = (int(answer.producer_id), int(answer.producer_epoch))
        self._write_producer()
        self._is_ending = False
        self._left -= 1

    def _must_ask_again(self, error_code: ErrorCode) -> bool:
        if error_code == ErrorCode.none:
            return False
        if error_code not in _NOT_YET:
            raise replay.BadAnswer(f"a transaction was answered with {ErrorCode(error_code).name}")
        self.retries += 1
        return True

    def _write_producer(self) -> None:
        _PRODUCER.pack_into(self._end, self._end_producer_at, *self._producer)
        start = self._batch_start
        _PRODUCER.pack_into(self._produce, start + _PRODUCER_AT, *self._producer)
        with memoryview(self._produce) as view, view[start + CRC_START : self._batch_end] as checked:
            crc = crc32c(checked)
        _CRC.pack_into(self._produce, start + _CRC_AT, crc)


def command(plan: TransactionReplay) -> list[str]:
    return [sys.executable, "-m", "bench.transaction_replay", json.dumps(asdict(plan))]


def main() -> None:
    plan = TransactionReplay(**json.loads(sys.argv[1]))
    streams = [TransactionStream(plan, number) for number in range(plan.producers)]
    spent = replay.drive(list(streams))
    commits = plan.producers * plan.transactions_per_producer
    print(json.dumps({"commits": commits, "retries": sum(stream.retries for stream in streams), **spent}))


if __name__ == "__main__":
    main()
