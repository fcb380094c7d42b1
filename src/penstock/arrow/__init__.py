"""Topics as Arrow tables, and from there to pandas, polars, DuckDB: `penstock.arrow.read`."""

from penstock.arrow.reading import read

__all__ = ["read"]
