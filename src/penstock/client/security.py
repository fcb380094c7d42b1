"""TLS and SASL, by the names that Kafka's clients use for them.

Java's names for stores are taken where their files are PEM, which Kafka supports since 2.7 (KIP-651), and librdkafka's
names too. Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 (RFC 5802).
"""

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.client.errors import ClientError
from penstock.protocol.messages import Struct

if TYPE_CHECKING:
    from penstock.client.connection import Connection

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS = ("PLAIN", *_SCRAM_HASHES)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS_FIELD = r'\b{}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))'


@dataclass(frozen=True)
class Security:
    """How to open a connection. Plain data, so that it travels to Spark's executors."""

    uses_tls: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    checks_host_name: bool = True

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        if not self.uses_tls:
            return plain
        context = ssl.create_default_context(cafile=self.ca_file, cadata=self.ca_pem)
        context.check_hostname = self.checks_host_name
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        return context.wrap_socket(plain, server_hostname=host)


def security_from(properties: Mapping[str, str]) -> Security:
    """From the properties of a Kafka client. Raises ClientError for what cannot be done."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ClientError(f"security.protocol is one of {', '.join(_PROTOCOLS)}; '{protocol}' is not")
    mechanism = None
    username = password = ""
    if protocol.startswith("SASL"):
        mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise ClientError(f"sasl.mechanism {mechanism} is not supported here; {', '.join(_MECHANISMS)} are")
        jaas = properties.get("sasl.jaas.config", "")
        username = properties.get("sasl.username") or _jaas_field(jaas, "username")
        password = properties.get("sasl.password") or _jaas_field(jaas, "password")
        if not username:
            raise ClientError("SASL needs a user: set sasl.username and sasl.password, or sasl.jaas.config")
    for store in ("ssl.truststore", "ssl.keystore"):
        if properties.get(f"{store}.location") and properties.get(f"{store}.type", "JKS").upper() != "PEM":
            raise ClientError(f"{store}.location must be a PEM file here, with {store}.type=PEM")
    certificate = properties.get("ssl.certificate.location") or properties.get("ssl.keystore.location")
    return Security(
        uses_tls=protocol.endswith("SSL"),
        mechanism=mechanism,
        username=username,
        password=password,
        ca_file=properties.get("ssl.ca.location") or properties.get("ssl.truststore.location"),
        ca_pem=properties.get("ssl.truststore.certificates"),
        certificate_file=certificate,
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        checks_host_name=properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("https", "\0"),
    )


def _jaas_field(jaas: str, name: str) -> str:
    found = re.search(_JAAS_FIELD.format(name), jaas)
    if found is None:
        return ""
    return re.sub(r"\\(.)", r"\1", found.group(1)) if found.group(1) is not None else found.group(2)


def authenticate(connection: "Connection", security: Security) -> None:
    if security.mechanism is None:
        return
    version = connection.version_of(_SASL_HANDSHAKE, 1)
    answer = connection.ask(_SASL_HANDSHAKE, Struct(mechanism=security.mechanism), version)
    if answer.error_code != ErrorCode.none:
        offered = ", ".join(answer.mechanisms)
        raise ClientError(f"{connection} does not take SASL {security.mechanism}; it takes {offered or 'none'}")
    if security.mechanism == "PLAIN":
        _exchange(connection, b"\0".join((b"", security.username.encode(), security.password.encode())))
    else:
        _scram(connection, security)


def _exchange(connection: "Connection", token: bytes) -> bytes:
    version = connection.version_of(_SASL_AUTHENTICATE, 2)
    answer = connection.ask(_SASL_AUTHENTICATE, Struct(auth_bytes=token), version)
    if answer.error_code != ErrorCode.none:
        reason = answer.error_message or "user or password is wrong"
        raise ClientError(f"{connection} refused the login: {reason}")
    return bytes(answer.auth_bytes)


def _scram(connection: "Connection", security: Security) -> None:
    assert security.mechanism is not None
    name = _SCRAM_HASHES[security.mechanism]
    nonce = base64.b64encode(os.urandom(24)).decode()
    user = security.username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={user},r={nonce}"
    server_first = _exchange(connection, f"n,,{first_bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    if not fields.get("r", "").startswith(nonce):
        raise ClientError(f"{connection} answered with another login's nonce")
    salted = hashlib.pbkdf2_hmac(name, security.password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    final_bare = f"c=biws,r={fields['r']}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = _exchange(connection, f"{final_bare},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(server_final, f"v={base64.b64encode(expected).decode()}"):
        raise ClientError(f"{connection} does not know the password itself: it may not be the broker it says it is")
