"""One partition as this node sees it: what may be appended, what may be read, and up to where; how a leader knows what
is committed (`replication`), and how a follower makes its log equal to the leader's (`follower`, `fetcher`).
"""
