"""One conversation with one broker, on a blocking socket: requests in order, answers in order.

Versions are the highest that both sides have; the broker is asked once. `ask` serves every message through the kio
seam. `send` and `receive_into` are its two halves, for the one caller to whom a copy of the answer matters.
"""

import socket
from collections.abc import Mapping
from struct import Struct as Packer
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.client.errors import ClientError, Unreachable
from penstock.client.security import Security, authenticate
from penstock.protocol.messages import Malformed, Struct, decode, encode, request_entity, response_entity

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 9, 10, 15, 16
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 18, 19, 22, 24, 26
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66

# The newest version of each that this client writes. Fetch and Produce stay with topic names, which came before ids.
VERSION_MAX: Mapping[int, int] = {
    PRODUCE: 12,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_FETCH: 8,
    FIND_COORDINATOR: 4,
    DESCRIBE_GROUPS: 5,
    LIST_GROUPS: 5,
    CREATE_TOPICS: 7,
    INIT_PRODUCER_ID: 6,
    ADD_PARTITIONS_TO_TXN: 3,
    END_TXN: 5,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 1,
}
_LENGTH = Packer(">i")
_HEADER = Packer(">ihhih")
_API_VERSIONS_VERSION = 3
_CLIENT_NAME = "penstock"
_FRAME_BYTES_MAX = 1 << 30

Address = tuple[str, int]


class Connection:
    def __init__(
        self,
        address: Address,
        security: Security,
        timeout_s: float,
        client_id: str = _CLIENT_NAME,
        receive_buffer_bytes: int = 0,
    ) -> None:
        """Connected and authenticated. Raises Unreachable, or ClientError for what another try will not change."""
        self.address = address
        self._client_id = client_id.encode()
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            plain = socket.create_connection(address, timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self._socket = security.wrapped(plain, address[0])
        except OSError as error:
            raise Unreachable(f"{self} cannot be reached: {error.strerror or error}") from error
        try:
            self._learn_versions()
            authenticate(self, security)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def close(self) -> None:
        self._socket.close()

    def _learn_versions(self) -> None:
        asked = Struct(client_software_name=_CLIENT_NAME, client_software_version="1")
        self._write(API_VERSIONS, _API_VERSIONS_VERSION, asked)
        answer = bytearray(self.receive_length())
        self.receive_into(memoryview(answer))
        # A broker that does not know the version answers in version 0, which begins in the same way.
        if answer[4:6] != b"\0\0":
            self._write(API_VERSIONS, 0, asked)
            answer = bytearray(self.receive_length())
            self.receive_into(memoryview(answer))
            learnt = self._decoded(API_VERSIONS, 0, answer)
        else:
            learnt = self._decoded(API_VERSIONS, _API_VERSIONS_VERSION, answer)
        self._versions = {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in learnt.api_keys}

    def version_of(self, api_key: int, version_max: int | None = None) -> int:
        """The version to speak. Raises ClientError when there is none in common."""
        ours = VERSION_MAX[api_key] if version_max is None else version_max
        lowest, highest = self._versions.get(api_key, (0, -1))
        version = min(ours, highest)
        if version < lowest or version < 0:
            name = request_entity(api_key, 0 if version_max is None else version_max).__name__
            raise ClientError(f"{self} does not serve {name} in a version that this client speaks")
        return version

    def serves(self, api_key: int, version: int) -> bool:
        lowest, highest = self._versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def ask(self, api_key: int, body: Struct, version: int | None = None) -> Any:
        """One request, one answer. Raises Unreachable."""
        if version is None:
            version = self.version_of(api_key)
        self.send(api_key, version, body)
        return self.receive(api_key, version)

    def receive(self, api_key: int, version: int) -> Any:
        """The answer to a request that was sent; answers come in the order of their requests."""
        answer = bytearray(self.receive_length())
        self.receive_into(memoryview(answer))
        return self._decoded(api_key, version, answer)

    def send(self, api_key: int, version: int, body: Struct) -> None:
        self._write(api_key, version, body)

    def _write(self, api_key: int, version: int, body: Struct) -> None:
        entity: Any = request_entity(api_key, version)
        frame = bytearray(_HEADER.size)
        frame += self._client_id
        if entity.__header_schema__.__version__ == 2:
            frame.append(0)
        frame += encode(entity, body)
        # The broker only echoes the correlation id, and answers a connection in order.
        _HEADER.pack_into(frame, 0, len(frame) - 4, api_key, version, 0, len(self._client_id))
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._broken(error) from error

    def receive_length(self) -> int:
        """How long the next answer is, header and body."""
        prefix = bytearray(4)
        self.receive_into(memoryview(prefix))
        (length,) = _LENGTH.unpack(prefix)
        if not 4 <= length <= _FRAME_BYTES_MAX:
            raise ClientError(f"{self} does not speak Kafka's protocol, or this port wants TLS")
        return int(length)

    def receive_into(self, buffer: memoryview) -> None:
        """Fills the buffer."""
        received = 0
        try:
            while received < len(buffer):
                count = self._socket.recv_into(buffer[received:])
                if not count:
                    raise Unreachable(f"{self} closed the connection")
                received += count
        except OSError as error:
            raise self._broken(error) from error

    def _decoded(self, api_key: int, version: int, answer: bytearray) -> Any:
        entity: Any = response_entity(api_key, version)
        try:
            return decode(entity, answer, 5 if entity.__header_schema__.__version__ == 1 else 4)
        except Malformed as error:
            raise ClientError(f"{self} answered what cannot be read: {error}") from error

    def _broken(self, error: OSError) -> Unreachable:
        reason = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return Unreachable(f"the connection to {self} broke: {reason}")


def code_of(value: object) -> ErrorCode:
    """kio gives error codes as such, and as bare numbers where its schema does."""
    return value if isinstance(value, ErrorCode) else ErrorCode(int(value))  # type: ignore[call-overload]
