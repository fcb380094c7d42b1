"""The cluster's metadata: its records, the image that they add up to, and the controller's decisions.

`records` are Kafka's schemas; `image` is the state, changed by replaying records only, and `snapshot` turns it into
records again; `controller` takes decisions, which are records and an answer. `topics`, `configs`, `placement` and
`features` hold the rules it decides by; `brokers`, `leadership`, `partition_change`, `alter_partition`, `elections` and
`reassignments` say who serves, who is in sync and who leads.
"""
