"""BeginQuorumEpoch (key 53), versions 0-1: the new leader of the metadata quorum makes itself known."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(53, "BeginQuorumEpoch", 0, 1, asking_quorum(53), is_for_brokers=True)
