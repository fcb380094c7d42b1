"""Logins by SASL, and the names by which people configure them."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.client.cluster import ClientConfig, Cluster
from penstock.client.connection import METADATA
from penstock.client.errors import ClientError
from penstock.client.security import Security, security_from
from penstock.protocol.messages import Struct
from tests.unit.client.scripted_broker import Handler, ScriptedBroker, metadata

HANDSHAKE, AUTHENTICATE = 17, 36
SALT, ITERATIONS = b"salt and more", 4096
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a \\"b\\" c";'


def handshake(_: ScriptedBroker, __: int, request: Any) -> Struct:
    known = request.mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    code = ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism
    return Struct(error_code=code, mechanisms=["PLAIN", "SCRAM-SHA-256"])


def refused() -> Struct:
    return Struct(error_code=ErrorCode.sasl_authentication_failed, error_message="no", auth_bytes=b"")


def plain(_: ScriptedBroker, __: int, request: Any) -> Struct:
    return Struct(error_code=ErrorCode.none, auth_bytes=b"") if request.auth_bytes == b"\0ann\0secret" else refused()


def scram(name: str, password: bytes, *, knows_password: bool = True) -> Handler:
    """The server's half of RFC 5802, for one login."""
    heard: list[str] = []

    def answer(_: ScriptedBroker, __: int, request: Any) -> Struct:
        message = request.auth_bytes.decode()
        if not heard:
            bare = message.removeprefix("n,,")
            nonce = bare.partition(",r=")[2]
            heard.extend([bare, f"r={nonce}server,s={base64.b64encode(SALT).decode()},i={ITERATIONS}"])
            return Struct(error_code=ErrorCode.none, auth_bytes=heard[1].encode())
        final, _, proof = message.rpartition(",p=")
        signed = ",".join((*heard, final)).encode()
        salted = hashlib.pbkdf2_hmac(name, password, SALT, ITERATIONS)
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        signature = hmac.digest(stored, signed, name)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(name, key).digest() != stored:
            return refused()
        server_key = hmac.digest(salted if knows_password else b"guess", b"Server Key", name)
        verifier = base64.b64encode(hmac.digest(server_key, signed, name)).decode()
        return Struct(error_code=ErrorCode.none, auth_bytes=f"v={verifier}".encode())

    return answer


def login(security: Security, authenticate: Handler) -> list[str]:
    broker = ScriptedBroker(
        {HANDSHAKE: handshake, AUTHENTICATE: authenticate}, {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)}
    )
    broker.handlers[METADATA] = metadata({1: broker.port}, "t", lambda: 1)
    try:
        with Cluster(ClientConfig(f"127.0.0.1:{broker.port}", security)) as cluster:
            return list(cluster.topics())
    finally:
        broker.close()


def test_plain_logs_in_and_a_wrong_password_is_said_at_once() -> None:
    assert login(Security(mechanism="PLAIN", username="ann", password="secret"), plain) == ["t"]
    with pytest.raises(ClientError, match="refused the login"):
        login(Security(mechanism="PLAIN", username="ann", password="other"), plain)


@pytest.mark.parametrize(("mechanism", "name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_proves_both_sides(mechanism: str, name: str) -> None:
    """RFC 5802, with a server that follows it to the letter."""
    user = Security(mechanism=mechanism, username="an=n,", password="secret")
    assert login(user, scram(name, b"secret")) == ["t"]
    with pytest.raises(ClientError, match="refused the login"):
        login(user, scram(name, b"other"))
    with pytest.raises(ClientError, match="may not be the broker"):
        login(user, scram(name, b"secret", knows_password=False))


def test_properties_go_by_the_names_of_java_and_of_librdkafka() -> None:
    java = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    java |= {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    assert security_from(java) == Security(True, "SCRAM-SHA-512", "ann", 'a "b" c', "ca.pem")
    native = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ann"}
    native |= {"sasl.password": 'a "b" c', "ssl.ca.location": "ca.pem"}
    assert security_from(native) == security_from(java)
    assert security_from({}) == Security()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI is not supported here"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "SASL needs a user"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "ca.jks"}, "must be a PEM file"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        security_from(properties)
