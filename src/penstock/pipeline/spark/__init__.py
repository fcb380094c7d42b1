"""Spark reads and writes topics: `format("penstock")`, with options, columns and offsets of Spark's Kafka connector.

`options`, `offsets`, `ranges` and `predicates` decide and do no I/O; `places` asks the cluster; `source` and `sink` are
what Spark calls.
"""
