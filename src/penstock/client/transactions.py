"""Transactions by their coordinator: begun with InitProducerId, ended with EndTxn, found with ListTransactions.

A two-phase transaction (KIP-939) has no timeout: once its records are stored it is prepared, and waits until somebody
who knows its producer id and epoch ends it. Partitions join a transaction with the first batch that they are sent
(KIP-890), so there is nothing to ask for in between.
"""

from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster
from penstock.client.connection import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    PRODUCE,
    Address,
    code_of,
)
from penstock.client.errors import ClientError, Refusal
from penstock.client.producing import ProducerId
from penstock.protocol.messages import Struct

_TRANSACTION_KEY = 1
_TWO_PHASE_VERSION = 6
_IMPLICIT_PARTITIONS_VERSION = 12
_TIMEOUT_MS = 60_000
ONGOING = "Ongoing"


class TransactionState(NamedTuple):
    state: str
    producer: ProducerId


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, Address] = {}

    def begin(self, transactional_id: str, *, is_two_phase: bool) -> ProducerId:
        """Puts out whoever had the id before, aborts what they left open, and gives a producer id and epoch. The
        transaction itself begins with the first batch."""
        body = Struct(
            transactional_id=transactional_id,
            transaction_timeout=_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=is_two_phase,
            keep_prepared_txn=False,
        )

        def attempt() -> ProducerId:
            if is_two_phase:
                self._check_two_phase(self._coordinator(transactional_id))
            answer = self._asked(transactional_id, INIT_PRODUCER_ID, body)
            code = code_of(answer.error_code)
            if code == ErrorCode.transactional_id_authorization_failed and is_two_phase:
                raise Refusal(
                    code,
                    f"transaction {transactional_id}",
                    "the broker does not allow two-phase commits, or not to you: set "
                    "transaction.two.phase.commit.enable=true on the brokers",
                )
            self._check(code, transactional_id)
            return ProducerId(int(answer.producer_id), int(answer.producer_epoch))

        return self._cluster.patiently(attempt, f"beginning transaction {transactional_id}")

    def end(self, transactional_id: str, producer: ProducerId, *, commits: bool) -> ProducerId:
        """Ends it, and gives what the producer goes on as. Asked again after it was ended so by the same producer, it
        changes nothing. Raises Refusal when the transaction is another one by now."""
        body = Struct(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commits,
        )

        def attempt() -> ProducerId:
            answer = self._asked(transactional_id, END_TXN, body)
            self._check(code_of(answer.error_code), transactional_id)
            # Before KIP-890 the producer stayed who it was.
            after = ProducerId(int(getattr(answer, "producer_id", -1)), int(getattr(answer, "producer_epoch", -1)))
            return producer if after.id < 0 else after

        return self._cluster.patiently(attempt, f"ending transaction {transactional_id}")

    def ongoing(self) -> list[str]:
        """The ids of all transactions that are open, at all coordinators."""

        def attempt() -> list[str]:
            self._cluster.refresh([])
            found = []
            for address in self._cluster.nodes.values():
                body = Struct(state_filters=[ONGOING], producer_id_filters=[], duration_filter=-1)
                answer = self._cluster.ask(address, LIST_TRANSACTIONS, body)
                self._check(code_of(answer.error_code), "the list of transactions")
                found += [str(each.transactional_id) for each in answer.transaction_states]
            return found

        return self._cluster.patiently(attempt, "listing transactions")

    def described(self, transactional_id: str) -> TransactionState | None:
        """None if there never was such a transaction."""

        def attempt() -> TransactionState | None:
            body = Struct(transactional_ids=[transactional_id])
            (found,) = self._asked(transactional_id, DESCRIBE_TRANSACTIONS, body).transaction_states
            code = code_of(found.error_code)
            if code == ErrorCode.transactional_id_not_found:
                return None
            self._check(code, transactional_id)
            producer = ProducerId(int(found.producer_id), int(found.producer_epoch))
            return TransactionState(str(found.transaction_state), producer)

        return self._cluster.patiently(attempt, f"asking for transaction {transactional_id}")

    def _check_two_phase(self, address: Address) -> None:
        connection = self._cluster.connection_to(address)
        if not connection.serves(INIT_PRODUCER_ID, _TWO_PHASE_VERSION) or not connection.serves(
            PRODUCE, _IMPLICIT_PARTITIONS_VERSION
        ):
            raise ClientError(
                f"{connection} has no two-phase transactions (KIP-939): exactly-once writing needs Penstock, or Apache "
                "Kafka 4.1 or later"
            )

    def _asked(self, transactional_id: str, api_key: int, body: Struct) -> Any:
        try:
            return self._cluster.ask(self._coordinator(transactional_id), api_key, body)
        except ClientError:
            self._coordinators.pop(transactional_id, None)
            raise

    def _coordinator(self, transactional_id: str) -> Address:
        if transactional_id not in self._coordinators:
            body = Struct(key_type=_TRANSACTION_KEY, key=transactional_id, coordinator_keys=[transactional_id])
            answer = self._cluster.ask_any(FIND_COORDINATOR, body)
            found = answer.coordinators[0]
            self._check(code_of(found.error_code), f"the coordinator of transaction {transactional_id}")
            self._coordinators[transactional_id] = (str(found.host), int(found.port))
        return self._coordinators[transactional_id]

    def _check(self, code: ErrorCode, what: str) -> None:
        if code in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
            self._coordinators.clear()
        if code != ErrorCode.none:
            raise Refusal(code, what)
