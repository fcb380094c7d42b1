"""The cluster's metadata: its records, the image that they add up to, and the controller's decisions.

`records` are Kafka's schemas; `image` is the state, changed by replaying records only; `controller` takes decisions,
which are records and an answer. `topics`, `configs` and `placement` hold the rules it decides by.
"""
