"""DescribeQuorum (key 55), versions 0-2: who is in the metadata quorum, and how far each one is."""

from penstock.broker.api import Api
from penstock.broker.handlers.quorum_calls import asking_quorum

API = Api(55, "DescribeQuorum", 0, 2, asking_quorum(55), on_controller=True)
