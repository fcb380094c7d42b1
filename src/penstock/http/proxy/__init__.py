"""What clients of the REST proxy call: version 2 (records and consumers) and version 3 (administration, records)."""
