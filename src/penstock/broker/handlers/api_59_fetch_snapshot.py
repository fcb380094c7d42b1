"""FetchSnapshot (key 59), versions 0-1: a snapshot of the metadata, by and by."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(59, "FetchSnapshot", 0, 1, asking_quorum(59), is_for_brokers=True)
