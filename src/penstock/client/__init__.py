"""A thin wire client on blocking sockets, for what confluent-kafka cannot do: Arrow columns, raw slices of a
partition, two-phase transactions, and groups' offsets while coordinators move.

`connection` carries one conversation, `security` opens it (TLS, SASL), `cluster` knows who leads what, `fetching` reads
a slice of a partition through leader changes, `record_columns` makes columns of what it read, `producing` writes.
"""
