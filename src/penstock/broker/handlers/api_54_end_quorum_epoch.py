"""EndQuorumEpoch (key 54), versions 0-1: the leader of the metadata quorum goes, and says who should follow it."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(54, "EndQuorumEpoch", 0, 1, asking_quorum(54), is_for_brokers=True)
