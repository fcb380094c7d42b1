"""ElectLeaders (key 43), versions 0-2.

Preferred elections and, from version 1 on, unclean ones (KIP-460). Without a list it is about all partitions: every
topic is answered, with those that needed an election.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.elections import ElectedPartition, ElectionType
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    election_type = getattr(request, "election_type", ElectionType.PREFERRED)
    asked, names = None, list(broker.image.topics)
    if request.topic_partitions is not None:
        names = [topic.topic for topic in request.topic_partitions]
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    try:
        answer = await broker.decide(lambda controller: controller.elect_leaders(election_type, asked))
    except Refused as refused:
        failed = [ElectedPartition(name, index, refused.code, refused.message) for name, index in asked or ()]
        return _answer(refused.code, names if asked else [], failed)
    return _answer(ErrorCode.none, names, answer)


def _answer(error_code: ErrorCode, names: list[str], elected: list[ElectedPartition]) -> Struct:
    by_topic: dict[str, list[ElectedPartition]] = {name: [] for name in names}
    for one in elected:
        by_topic.setdefault(one.topic, []).append(one)
    results = [Struct(topic=topic, partition_result=partitions) for topic, partitions in by_topic.items()]
    return Struct(error_code=error_code, replica_election_results=results)


API = Api(43, "ElectLeaders", 0, 2, handle, on_controller=True)
