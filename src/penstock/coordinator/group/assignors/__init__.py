"""Which member of a consumer group should have which partition: the assignors that run on the server (KIP-848).

An assignor is a generator: it yields after every slice of work of about a millisecond and returns the assignment, so
that a group of thousands of members never holds up the event loop. It sees topic ids, never names.
"""

from penstock.coordinator.group.assignors.range import assign_range
from penstock.coordinator.group.assignors.spec import Assigning, Assignor, GroupSpec, MemberSpec, Partitions
from penstock.coordinator.group.assignors.uniform import assign_uniform

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

__all__ = ["ASSIGNORS", "Assigning", "Assignor", "GroupSpec", "MemberSpec", "Partitions"]
