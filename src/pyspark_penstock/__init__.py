"""Found by Spark by its name: `format("penstock")` works with nothing to register."""

from penstock.pipeline.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
