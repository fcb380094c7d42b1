"""The cluster's topics, groups and assignments as SQL tables, read-only.

    import penstock.sql

    for row in penstock.sql.query("SELECT name FROM Topic WHERE partition_count > 1", brokers="127.0.0.1:9092"):
        print(row["name"])

`query` asks the cluster anew for the tables that its statement mentions. `tables` takes all three at once into a
connection of the sqlite3 module, for several questions about one moment, or for whatever takes such a connection
(pandas.read_sql, say). `source` asks the cluster, `view` makes the tables. A client of the cluster like any other, this
room knows nothing of the rooms that serve it.
"""

from penstock.sql.view import SCHEMA, BadStatement, query, tables

__all__ = ["SCHEMA", "BadStatement", "query", "tables"]
