"""The transaction coordinator: which producer a transactional id belongs to, which partitions its transaction wrote to,
and how it ended.

One `TransactionShard` per partition of `__transaction_state`. An end is decided once, by the record that says
PrepareCommit or PrepareAbort; the markers that tell the partitions follow from it, however often the coordinator has to
start anew. `states` has the table of states, `records` the state of one transactional id and its bytes,
`initialisation`, `membership` and `ending` what requests come to, `shard` the door.
"""
