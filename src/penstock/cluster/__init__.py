"""What a cluster agrees on and how partitions behave: pure, no I/O.

`raft` decides who leads the metadata and what is in its log; `metadata` holds topics, configs and brokers and decides
changes to them; `partition` is one partition on one node.
"""
