"""penstock log dump: files of a data directory, printed without a broker."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import EXIT_FAILED, Failed
from penstock.cli.formats import record_fields
from penstock.cli.options import OutputOption
from penstock.cli.printing import Output, bold, human_bytes, note, plural, print_rows, say

if TYPE_CHECKING:
    from penstock.cli.data_files import Batch

app = typer.Typer(help="Look into the files of a log.", no_args_is_help=True)

_METADATA_DIRECTORY = "__cluster_metadata-0"


@app.callback()
def log() -> None:
    """Keeps `dump` a command of its own: typer would make a single command the group itself."""


@app.command()
def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR", help="Files, or directories of them.", show_default=False)
    ],
    records: Annotated[bool, typer.Option("-r", "--records", help="The records inside the batches too.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print segments, indexes, snapshots and checkpoints, and check them. Needs no broker.

    Segments have every checksum verified; what does not hold together is reported, with exit code 1. JSON comes as one
    object per line.
    """
    dumper: Dumper = JsonDumper(records) if output is Output.JSON else TextDumper(records)
    for path in _files(paths):
        dumper.dump(path)
    if dumper.problems:
        note(f"penstock: {plural(dumper.problems, 'problem')} found")
        raise typer.Exit(EXIT_FAILED)


def _files(paths: list[Path]) -> Iterator[Path]:
    from penstock.cli.data_files import is_known

    for path in paths:
        if path.is_dir():
            found = sorted(each for each in path.rglob("*") if each.is_file() and is_known(each))
            if not found:
                raise Failed(f"{path} holds no files of a log")
            yield from found
        elif not path.exists():
            raise Failed(f"there is no {path}")
        elif not is_known(path):
            raise Failed(f"{path} is no file of a log: those end in .log, .index, .timeindex, .snapshot, -checkpoint")
        else:
            yield path


class Dumper(ABC):
    """Reads files one after the other; the two kinds of output differ in what they print."""

    def __init__(self, with_records: bool) -> None:
        self.with_records = with_records
        self.problems = 0

    def dump(self, path: Path) -> None:
        from penstock.cli.data_files import Unreadable, is_segment, read_batches, small_file_rows

        try:
            with path.open("rb") as file:
                self.begin(path)
                if is_segment(path):
                    for batch in read_batches(file):
                        self.problems += batch.problem is not None
                        self.batch(path, batch)
                    self.end_of_segment()
                else:
                    self.rows(path, small_file_rows(path, file.read()))
        except Unreadable as error:
            self.problems += 1
            self.unreadable(path, str(error))
        except BrokenPipeError:
            # Of who reads what is printed, not of the file.
            raise
        except OSError as error:
            raise Failed(f"cannot read {path}: {error.strerror}") from error

    @abstractmethod
    def begin(self, path: Path) -> None: ...

    @abstractmethod
    def batch(self, path: Path, batch: "Batch") -> None: ...

    @abstractmethod
    def end_of_segment(self) -> None: ...

    @abstractmethod
    def rows(self, path: Path, rows: list[dict[str, Any]]) -> None: ...

    @abstractmethod
    def unreadable(self, path: Path, problem: str) -> None: ...


class JsonDumper(Dumper):
    def begin(self, path: Path) -> None:
        pass

    def batch(self, path: Path, batch: "Batch") -> None:
        row: dict[str, Any] = {"file": str(path)} | batch.row()
        if self.with_records:
            row["record_details"] = list(_record_rows(path, batch))
        say(json.dumps(row, ensure_ascii=False))

    def end_of_segment(self) -> None:
        pass

    def rows(self, path: Path, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            say(json.dumps({"file": str(path)} | row, ensure_ascii=False))

    def unreadable(self, path: Path, problem: str) -> None:
        say(json.dumps({"file": str(path), "problem": problem}))


class TextDumper(Dumper):
    def __init__(self, with_records: bool) -> None:
        super().__init__(with_records)
        self._is_first = True
        self._batches = 0
        self._records = 0
        self._first_offset = 0
        self._last_offset = 0

    def begin(self, path: Path) -> None:
        if not self._is_first:
            say()
        self._is_first = False
        self._batches = self._records = 0
        say(f"{bold(str(path))}  {human_bytes(path.stat().st_size)}")

    def batch(self, path: Path, batch: "Batch") -> None:
        header = batch.header
        if not self._batches:
            self._first_offset = header.base_offset
        self._batches += 1
        self._records += header.record_count
        self._last_offset = header.last_offset
        say(_batch_line(batch))
        if self.with_records:
            for row in _record_rows(path, batch):
                say(_record_line(row))

    def end_of_segment(self) -> None:
        if self._batches:
            batches = "1 batch" if self._batches == 1 else f"{self._batches:,} batches"
            say(f"{batches}, {plural(self._records, 'record')}, offsets {self._first_offset}-{self._last_offset}")
        else:
            say("empty")

    def rows(self, path: Path, rows: list[dict[str, Any]]) -> None:
        if rows:
            print_rows([_with_dates(row) for row in rows], list(rows[0]), Output.TEXT)
        else:
            say("empty")

    def unreadable(self, path: Path, problem: str) -> None:
        say(f"PROBLEM: {problem}")


def _batch_line(batch: "Batch") -> str:
    header = batch.header
    row = batch.row()
    words = [
        f"offsets {header.base_offset}-{header.last_offset}",
        plural(header.record_count, "record"),
        f"at {batch.position}",
        f"{header.size} bytes",
        row["codec"],
        _date(header.max_timestamp) + (" (append time)" if row["timestamp_type"] == "LogAppendTime" else ""),
        f"leader epoch {header.leader_epoch}",
    ]
    if header.producer_id >= 0:
        words.append(f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}")
    words += [name for name in ("transactional", "control") if row[name]]
    words.append(f"PROBLEM: {batch.problem}" if batch.problem else "crc right")
    return "  ".join(words)


def _record_line(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"  | PROBLEM: {row['problem']}"
    shown = {name: value for name, value in row.items() if name not in ("offset", "timestamp")}
    fields = " ".join(f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in shown.items())
    return f"  | {row['offset']}  {_date(row['timestamp'])}  {fields}"


def _record_rows(path: Path, batch: "Batch") -> Iterator[dict[str, Any]]:
    from penstock.protocol.compression import CorruptCompression
    from penstock.protocol.records import CorruptRecords, iterate_records

    if batch.problem:
        return
    is_metadata = path.parent.name == _METADATA_DIRECTORY and not batch.header.is_control
    try:
        for record in iterate_records(batch.data, batch.header):
            row: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
            if is_metadata:
                yield row | {"metadata": _metadata_record(record.value or b"")}
            else:
                yield row | record_fields(record.key, record.value, record.headers)
    except (CorruptRecords, CorruptCompression) as error:
        yield {"problem": str(error)}


def _metadata_record(value: bytes) -> str:
    from penstock.cluster.metadata.records import decode_record
    from penstock.protocol.messages import Malformed

    try:
        return str(decode_record(value))
    except Malformed as error:
        return f"not readable: {error}"


def _with_dates(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _date(value) if name.endswith("timestamp") else value for name, value in row.items()}


def _date(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
