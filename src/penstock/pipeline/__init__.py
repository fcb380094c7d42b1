"""The data pipeline: Spark reads and writes topics. It reaches the cluster as any client does, over the wire."""
