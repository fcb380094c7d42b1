"""Kafka's own command line tools, all in one JVM."""

import base64
import re
import subprocess
from pathlib import Path

from tests.conformance.apache_kafka import java_command

RUNNER = Path(__file__).parent / "java" / "RunTools.java"

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONFIGS = "kafka.admin.ConfigCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
# What DumpLogSegments prints when it finds something wrong. "Non-consecutive offsets ... -1 is followed by" does not
# count: it says that of every segment that does not begin at 0, Kafka's own included.
COMPLAINTS = re.compile(
    r"isvalid: false|Mismatches|invalid bytes|not found|Indexed offset|Found timestamp|exception", re.I
)


class JavaTools:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            java_command(str(RUNNER)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, tool: str, *arguments: str, stdin: bytes = b"", expect: int = 0) -> str:
        """What it printed. Fails when it ends with another exit code than expected."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = base64.b64encode("\0".join([tool, *arguments]).encode())
        self._process.stdin.write(words + b" " + base64.b64encode(stdin) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the JVM ended; is this a JDK that can run a source file?"
        code, _, printed = answer.partition(b" ")
        text = base64.b64decode(printed).decode(errors="replace")
        assert int(code) == expect, f"{tool} ended with {int(code)}:\n{text}"
        return text

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def check_segments(self, directory: Path) -> str:
        """DumpLogSegments over all segments and indexes in a partition's directory: it must find nothing wrong."""
        files = sorted(str(path) for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
        assert files
        printed = self.run(DUMP_LOG_SEGMENTS, "--deep-iteration", "--print-data-log", "--files", ",".join(files))
        assert not COMPLAINTS.search(printed), printed[-3000:]
        return printed
