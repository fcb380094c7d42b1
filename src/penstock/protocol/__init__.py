"""Kafka's wire format: frames and headers, record batches, and messages.

`messages` is the seam to kio and serves every API in every version; `produce` and `fetch` are written by hand because
they are the hot path; `batch` reads and patches batch headers, `records` and `compression` look inside a batch.
"""
