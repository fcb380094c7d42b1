"""The benchmark: Penstock beside Apache Kafka, in one run, with the same clients. See README.md."""
