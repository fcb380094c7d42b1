"""A partition on disk: segments, indexes, producer state and leader epochs, byte for byte as Kafka keeps them.

Start with log.py, which a partition holds one object of; segment.py and index.py are what it is made of, storage.py how
it is kept, loading.py how it comes up after a stop or a crash. Files are reached only through the Disk port.
"""
