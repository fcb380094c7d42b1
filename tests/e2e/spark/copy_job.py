"""A job as people submit it: copies a topic to another one exactly once, in small micro-batches, until it has all.

python copy_job.py MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession

master, bootstrap, source, target, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .appName("copy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.cores", "1")
    .config("spark.task.maxFailures", "4")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
cluster = {"kafka.bootstrap.servers": bootstrap}
rows = (
    spark.readStream.format("penstock")
    .options(**cluster, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="500")
    .load()
    .select("key", "value")
)
query = (
    rows.writeStream.format("penstock")
    .options(**cluster, topic=target, exactlyOnce="true", sinkId=target, checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
)
print("started", flush=True)
query.awaitTermination()
print("done", flush=True)
