"""Penstock: a durable, partitioned commit log that speaks the Kafka protocol."""
