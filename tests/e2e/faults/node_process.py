"""The process of a node under test: as `penstock up` starts it, but on a disk that remembers what was synced."""

from penstock.cli.node import main
from tests.e2e.faults.disk import RecordingDisk

if __name__ == "__main__":
    main(RecordingDisk)
