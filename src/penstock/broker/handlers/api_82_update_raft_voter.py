"""UpdateRaftVoter (key 82), version 0: a voter of the metadata quorum has another address or other features."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(82, "UpdateRaftVoter", 0, 0, asking_quorum(82), is_for_brokers=True)
