"""The metadata quorum: who leads, what is decided, who votes. A pull-based Raft in KRaft's shape, pure.

`quorum.py` is the way in; `roles.py` has the table of roles, `effects.py` what the shell owes it. Layers of one class:
state -> elections -> replication -> membership -> quorum.
"""

from penstock.cluster.raft.effects import VoteState
from penstock.cluster.raft.quorum import Quorum
from penstock.cluster.raft.roles import QuorumConfig, Role

__all__ = ["Quorum", "QuorumConfig", "Role", "VoteState"]
