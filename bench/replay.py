"""The raw replayer: pre-encoded requests over several connections, as cheap for the client as it gets.

It runs as a process of its own with one thread, so that on two cores the broker always has one to itself. Produce
requests are identical bytes (for an idempotent producer: with the sequences and their CRC written anew), pipelined;
of the responses only length and error codes are looked at. Fetches walk a log of equal batches, which
a produce replay wrote: the next offset follows from the number of bytes, so the records are thrown away in the
kernel (MSG_TRUNC) without ever being copied.

    python -m bench.replay produce '{"port": 9092, ...}'     prints {"records": ..., "seconds": ..., "cpu_seconds": ...}
"""

import json
import select
import socket
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from struct import Struct as Packer
from typing import Protocol

from crc32c import crc32c

from bench import wire
from penstock.protocol.batch import CRC_START, HEADER_BYTES
from penstock.protocol.messages import Struct, encode_response

STALL_TIMEOUT_S = 30.0

_LENGTH = Packer(">i")
_INT16 = Packer(">h")
_INT64 = Packer(">q")
_CRC = Packer(">I")
_CRC_AT = 17
_BASE_SEQUENCE = Packer(">i")
_BASE_SEQUENCE_AT = 53
_SEQUENCE_MAX = 2**31 - 1


class BadAnswer(Exception):
    """A response that is not the plain success that a replay expects; the message shows it decoded."""


@dataclass(frozen=True)
class ProduceReplay:
    port: int
    topic: str
    partitions: int
    record_bytes: int
    batch_records: int
    # A request has one batch for each of this many partitions.
    batches_per_request: int
    requests: int
    connections: int
    in_flight_max: int
    acks: int
    idempotent: bool


@dataclass(frozen=True)
class FetchReplay:
    port: int
    topic_id: str
    partitions: int
    # How the log was written: every batch with so many records of such a size.
    record_bytes: int
    batch_records: int
    connections: int
    # How often each connection reads its partition from the start to the end.
    passes: int
    partition_fetch_bytes_max: int


class Stream(Protocol):
    """One connection: writes while there is something to send, reads while something is expected."""

    socket: socket.socket

    def write(self) -> None: ...

    def read(self) -> None: ...

    def wants_to_write(self) -> bool: ...

    def is_done(self) -> bool: ...


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


class ProduceStream:
    def __init__(self, plan: ProduceReplay, first_partition: int, requests: int) -> None:
        partitions = sorted((first_partition + i) % plan.partitions for i in range(plan.batches_per_request))
        producer_id, epoch = -1, -1
        if plan.idempotent:
            with wire.Connection(plan.port) as connection:
                producer_id, epoch = wire.init_producer_id(connection)
        sequence = 0 if plan.idempotent else -1
        batch = wire.record_batch(plan.batch_records, plan.record_bytes, producer_id, epoch, sequence)
        request = wire.produce_request(plan.topic, dict.fromkeys(partitions, batch), plan.acks)
        frame = wire.request_frame(wire.PRODUCE, wire.PRODUCE_VERSION, request)
        self._frame_bytes = len(frame)
        # As many copies as may be in flight: what the window has room for goes out in one send.
        self._frames = frame * plan.in_flight_max
        self._batch_starts = _occurrences(frame, bytes(batch)) if plan.idempotent else []
        self._batch_bytes = len(batch)
        self._batch_records = plan.batch_records
        self._next_sequence = 0
        self._answer_bytes, self._error_positions = _produce_answer_shape(plan.topic, partitions)
        self._received = bytearray(max(64 * 1024, 2 * self._answer_bytes * plan.in_flight_max))
        self._received_bytes = 0
        self._unsent = memoryview(b"")
        self._in_flight = 0
        self._in_flight_max = plan.in_flight_max
        self._to_send = requests
        self.socket = connect(plan.port)

    def wants_to_write(self) -> bool:
        # Once half of the window is free, not at every answer: fewer and larger sends.
        return bool(self._unsent) or (self._to_send > 0 and self._in_flight <= self._in_flight_max // 2)

    def is_done(self) -> bool:
        return self._to_send == 0 and self._in_flight == 0 and not self._unsent

    def write(self) -> None:
        if not self._unsent:
            count = min(self._in_flight_max - self._in_flight, self._to_send)
            for index in range(count if self._batch_starts else 0):
                self._write_sequences(index * self._frame_bytes)
            self._unsent = memoryview(self._frames)[: count * self._frame_bytes]
            self._in_flight += count
            self._to_send -= count
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return

    def _write_sequences(self, frame_start: int) -> None:
        frames = self._frames
        for start in self._batch_starts:
            start += frame_start
            _BASE_SEQUENCE.pack_into(frames, start + _BASE_SEQUENCE_AT, self._next_sequence)
            with memoryview(frames) as view, view[start + CRC_START : start + self._batch_bytes] as checked:
                _CRC.pack_into(frames, start + _CRC_AT, crc32c(checked))
        self._next_sequence += self._batch_records
        if self._next_sequence > _SEQUENCE_MAX:
            raise BadAnswer("the plan has more records than there are sequence numbers")

    def read(self) -> None:
        data = self._received
        count = self.socket.recv_into(memoryview(data)[self._received_bytes :])
        if count == 0:
            raise BadAnswer("the broker closed the connection")
        end = self._received_bytes + count
        position = 0
        size = self._answer_bytes
        while end - position >= size:
            if _LENGTH.unpack_from(data, position)[0] != size - 4:
                break
            for error_at in self._error_positions:
                if data[position + error_at] or data[position + error_at + 1]:
                    raise BadAnswer(_shown(wire.PRODUCE, wire.PRODUCE_VERSION, data[position:end]))
            position += size
            self._in_flight -= 1
        if end - position >= 4 and _LENGTH.unpack_from(data, position)[0] != size - 4:
            raise BadAnswer(_shown(wire.PRODUCE, wire.PRODUCE_VERSION, data[position:end]))
        data[: end - position] = data[position:end]
        self._received_bytes = end - position


def _occurrences(data: bytes | bytearray, part: bytes) -> list[int]:
    found = []
    position = data.find(part)
    while position >= 0:
        found.append(position)
        position = data.find(part, position + len(part))
    return found


def _produce_answer_shape(topic: str, partitions: list[int]) -> tuple[int, list[int]]:
    """(bytes of a successful answer, where in it the error codes are): learnt by encoding one with and one without."""

    def answer(error_code: int) -> bytearray:
        parts = [
            Struct(index=index, error_code=error_code, base_offset=0, log_append_time=-1, log_start_offset=0)
            for index in partitions
        ]
        body = Struct(responses=[Struct(name=topic, partition_responses=parts)])
        return encode_response(wire.PRODUCE, wire.PRODUCE_VERSION, 0, body)

    plain, marked = answer(0), answer(1)
    positions = [index - 1 for index in range(len(plain)) if plain[index] != marked[index]]
    assert len(positions) == len(partitions)
    return len(plain), positions


class FetchStream:
    """Reads one partition from its start, `passes` times, with one fetch in flight, as a consumer does."""

    # Version 16's answer for one partition, up to its records: offsets from the frame's start.
    _TOP_ERROR_AT = 13
    _PARTITION_ERROR_AT = 41
    _HIGH_WATERMARK_AT = 43
    _RECORDS_LENGTH_AT = 72
    _HEAD_BYTES = _RECORDS_LENGTH_AT + 5 + HEADER_BYTES

    def __init__(self, plan: FetchReplay, partition: int, discarded: bytearray) -> None:
        self._batch_bytes = len(wire.record_batch(plan.batch_records, plan.record_bytes))
        self._batch_records = plan.batch_records
        self._passes_left = plan.passes
        mark = 0x7A5C3E1F12345678
        asked = Struct(partition=partition, fetch_offset=mark, partition_max_bytes=plan.partition_fetch_bytes_max)
        topic = Struct(topic_id=uuid.UUID(plan.topic_id), partitions=[asked])
        body = Struct(max_wait=500, min_bytes=1, max_bytes=50 * 1024 * 1024, session_epoch=-1, topics=[topic])
        self._frame = wire.request_frame(wire.FETCH, wire.FETCH_VERSION, body)
        self._offset_at = self._frame.index(_INT64.pack(mark))
        self._head = bytearray(self._HEAD_BYTES)
        self._head_bytes = 0
        self._left_bytes = 0
        self._discarded = discarded
        self._offset = 0
        self._high_watermark = 0
        self._is_waiting = False
        self.records = 0
        self.socket = connect(plan.port)

    def wants_to_write(self) -> bool:
        return not self._is_waiting and self._passes_left > 0

    def is_done(self) -> bool:
        return self._passes_left == 0 and not self._is_waiting

    def write(self) -> None:
        _INT64.pack_into(self._frame, self._offset_at, self._offset)
        # About a hundred bytes into an empty buffer: the kernel takes them whole.
        if self.socket.send(self._frame) != len(self._frame):
            raise BadAnswer("the connection took only part of a request")
        self._is_waiting = True
        self._head_bytes = 0

    def read(self) -> None:
        if self._head_bytes < self._HEAD_BYTES:
            count = self.socket.recv_into(memoryview(self._head)[self._head_bytes :])
            if count == 0:
                raise BadAnswer("the broker closed the connection")
            self._head_bytes += count
            if self._head_bytes < self._HEAD_BYTES:
                self._refuse_short_answer()
                return
            self._begin_answer()
        try:
            while self._left_bytes > 0:
                size = min(self._left_bytes, len(self._discarded))
                count = self.socket.recv_into(self._discarded, size, socket.MSG_TRUNC)
                if count == 0:
                    raise BadAnswer("the broker closed the connection")
                self._left_bytes -= count
        except BlockingIOError:
            return
        self._is_waiting = False
        if self._offset >= self._high_watermark:
            self._offset = 0
            self._passes_left -= 1

    def _refuse_short_answer(self) -> None:
        # No fetch of a replay is at the log's end, so every answer has at least one batch.
        if self._head_bytes >= 4 and _LENGTH.unpack_from(self._head)[0] + 4 <= self._head_bytes:
            raise BadAnswer(_shown(wire.FETCH, wire.FETCH_VERSION, self._head[: self._head_bytes]))

    def _begin_answer(self) -> None:
        head = self._head
        top_error = _INT16.unpack_from(head, self._TOP_ERROR_AT)[0]
        partition_error = _INT16.unpack_from(head, self._PARTITION_ERROR_AT)[0]
        if top_error or partition_error:
            raise BadAnswer(f"a fetch was answered with error codes {top_error} and {partition_error}")
        self._high_watermark = _INT64.unpack_from(head, self._HIGH_WATERMARK_AT)[0]
        length, position = _read_uvarint(head, self._RECORDS_LENGTH_AT)
        first_offset = _INT64.unpack_from(head, position)[0]
        batches = (length - 1) // self._batch_bytes
        if first_offset != self._offset or batches == 0:
            raise BadAnswer(f"a fetch at {self._offset} brought {length - 1} bytes from offset {first_offset} on")
        # The length is a compact one: by one too large. The last batch may be cut; it is asked for again.
        self._offset += batches * self._batch_records
        self.records += batches * self._batch_records
        self._left_bytes = 4 + _LENGTH.unpack_from(head)[0] - self._HEAD_BYTES


def _read_uvarint(data: bytearray, position: int) -> tuple[int, int]:
    value = shift = 0
    while data[position] & 0x80:
        value |= (data[position] & 0x7F) << shift
        shift += 7
        position += 1
    return value | data[position] << shift, position + 1


def _shown(api_key: int, version: int, frame: bytearray) -> str:
    length = _LENGTH.unpack_from(frame)[0]
    try:
        return str(wire.response_body(api_key, version, bytes(frame[4 : 4 + length])))
    except ValueError:
        return f"an answer that cannot be read: {bytes(frame[:200])!r}"


def drive(streams: list[Stream]) -> dict[str, float]:
    """Runs the streams to their ends; the seconds that took, and how many of them this process was at work."""
    both = select.EPOLLIN | select.EPOLLOUT
    # The bare epoll: what the selectors module adds would be a good part of this process's time.
    with select.epoll() as epoll:
        running = {stream.socket.fileno(): stream for stream in streams}
        wanted = dict.fromkeys(running, both)
        for descriptor in running:
            epoll.register(descriptor, both)
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        while running:
            ready = epoll.poll(STALL_TIMEOUT_S)
            if not ready:
                raise BadAnswer(f"nothing came for {STALL_TIMEOUT_S:.0f} s")
            for descriptor, events in ready:
                stream = running[descriptor]
                if events & ~select.EPOLLOUT:
                    stream.read()
                if stream.wants_to_write():
                    stream.write()
                if stream.is_done():
                    epoll.unregister(descriptor)
                    del running[descriptor]
                    continue
                events_wanted = both if stream.wants_to_write() else select.EPOLLIN
                if events_wanted != wanted[descriptor]:
                    epoll.modify(descriptor, events_wanted)
                    wanted[descriptor] = events_wanted
        return {"seconds": time.perf_counter() - started_s, "cpu_seconds": time.process_time() - started_cpu_s}


def replay_produce(plan: ProduceReplay) -> dict[str, float]:
    share, rest = divmod(plan.requests, plan.connections)
    streams: list[Stream] = [
        ProduceStream(plan, index * plan.batches_per_request, share + (index < rest))
        for index in range(plan.connections)
    ]
    return {"records": plan.requests * plan.batches_per_request * plan.batch_records, **drive(streams)}


def replay_fetch(plan: FetchReplay) -> dict[str, float]:
    discarded = bytearray(4 * 1024 * 1024)
    streams = [FetchStream(plan, index % plan.partitions, discarded) for index in range(plan.connections)]
    spent = drive(list(streams))
    return {"records": sum(stream.records for stream in streams), **spent}


def command(plan: ProduceReplay | FetchReplay) -> list[str]:
    kind = "produce" if isinstance(plan, ProduceReplay) else "fetch"
    return [sys.executable, "-m", "bench.replay", kind, json.dumps(asdict(plan))]


def main() -> None:
    kind, plan = sys.argv[1], json.loads(sys.argv[2])
    result = replay_produce(ProduceReplay(**plan)) if kind == "produce" else replay_fetch(FetchReplay(**plan))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
