"""What a cluster agrees on and how partitions behave: pure, no I/O.

`metadata` holds topics, configs and brokers and decides changes to them; `partition` is one partition on one node.
"""
