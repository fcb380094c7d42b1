"""AddRaftVoter (key 80), versions 0-1: one more voter in the metadata quorum (KIP-853)."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(80, "AddRaftVoter", 0, 1, asking_quorum(80), on_controller=True)
