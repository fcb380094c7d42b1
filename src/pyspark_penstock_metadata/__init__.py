"""Found by Spark by its name: `format("penstock.metadata")` works with nothing to register."""

from penstock.pipeline.spark.metadata import MetadataDataSource as DefaultSource

__all__ = ["DefaultSource"]
