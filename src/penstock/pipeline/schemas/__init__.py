"""Values with a schema of the registry, as Arrow columns: Avro, Protobuf and JSON, in the frames of Confluent's.

`registry_client` asks the registry; `avro`, `protobuf` and `json_schema` say what Arrow type a schema is, and make rows
of bytes and bytes of rows; `derived_*` make a schema of an Arrow type; `framing` and `decoding` do whole columns. Spark
is not known here.
"""
