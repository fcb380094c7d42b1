"""A job that copies a topic to another one exactly once for ever, and starts its query again whenever it failed.

python crash_job.py MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT
"""

import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.e2e.spark.crashing import CrashingDataSource

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
    # An executor that is killed a hundred times is no reason to give up.
    .config("spark.deploy.maxExecutorRetries", "-1")
    .config("spark.excludeOnFailure.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(CrashingDataSource)
cluster = {"kafka.bootstrap.servers": bootstrap}
while True:
    rows = (
        spark.readStream.format("penstock")
        .options(**cluster, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("crashing")
        .options(**cluster, topic=target, exactlyOnce="true", sinkId=target, checkpointLocation=checkpoint)
        .start()
    )
    print("started", flush=True)
    try:
        query.awaitTermination()
    except PySparkException as error:
        print(f"failed: {str(error)[:2000]}", flush=True)
