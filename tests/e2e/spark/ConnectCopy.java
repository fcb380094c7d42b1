// A Spark Connect client that has neither Python nor our package: the server finds the format by itself.
//
// java ConnectCopy.java SC_URL BOOTSTRAP SOURCE TARGET CHECKPOINT

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

public class ConnectCopy {
    public static void main(String[] arguments) {
        try {
            copy(arguments);
        } catch (Throwable problem) {
            // Java's launcher of source files loses what is thrown out of it.
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private static void copy(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        SparkSession spark = SparkSession.builder().config("spark.api.mode", "connect").remote(arguments[0]).getOrCreate();
        Dataset<Row> rows = spark.readStream().format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", arguments[2])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "60")
            .load();
        StreamingQuery query = rows.selectExpr("key", "value").writeStream().format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", arguments[3])
            .option("exactlyOnce", "true")
            .option("sinkId", arguments[3])
            .option("checkpointLocation", arguments[4])
            .trigger(Trigger.AvailableNow())
            .start();
        query.awaitTermination();
        long count = spark.read().format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", arguments[3])
            .option("kafka.isolation.level", "read_committed")
            .load()
            .count();
        System.out.println("copied " + count);
        spark.close();
    }
}
