"""RemoveRaftVoter (key 81), version 0: one voter less in the metadata quorum (KIP-853)."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(81, "RemoveRaftVoter", 0, 0, asking_quorum(81), on_controller=True)
