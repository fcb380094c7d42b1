"""Vote (key 52), versions 0-2: a node of the metadata quorum asks for votes, or whether it would get them (KIP-996)."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(52, "Vote", 0, 2, asking_quorum(52), is_for_brokers=True)
