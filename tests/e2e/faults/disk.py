"""A node's disk that remembers which bytes were synced, so that a power cut can take the others.

The node runs on `RecordingDisk`, which notes every sync, replacement, rename and truncation in a journal beside the
data directory. It is written when the call is done, so what the journal does not have nobody was promised. Kills leave
both alone, as they leave the page cache. `cut_power`, after the kill, makes of the directory what a disk would have
kept: as penstock.testing.SimDisk does it, synced bytes and some prefix of the others, perhaps with a torn end; old or
new bytes of a file that was replaced without a sync; names in their order.
"""

import json
import os
import random
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.broker.ports import RealDisk, RealFile

_UNTOUCHED = (".lock",)
_SYNC_SECONDS = 0.005


class RecordingFile(RealFile):
    __slots__ = ()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._disk.note(op="truncate", path=self.path, size=size)  # type: ignore[attr-defined]

    def descriptor_to_sync(self) -> int | None:
        """None: a sync that the kernel is asked for would not be noted."""
        return None


class RecordingDisk(RealDisk):
    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._journal = os.open(journal_of(Path(root)), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._shadows = shadows_of(Path(root))
        self._shadows.mkdir(exist_ok=True)
        self._replacements = max((int(path.name) for path in self._shadows.iterdir()), default=0)
        self._replacing = threading.Lock()

    def note(self, **event: Any) -> None:
        os.write(self._journal, json.dumps(event).encode() + b"\n")

    def open(self, path: str) -> RealFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = RecordingFile(self, path)
        return file

    def sync_file(self, file: RealFile) -> None:
        try:
            size = os.stat(self.absolute(file.path)).st_size
        except FileNotFoundError:
            size = 0
        path = file.path
        super().sync_file(file)
        # As long as a disk takes: in memory nothing would ever be left unsynced for a power cut to take.
        time.sleep(_SYNC_SECONDS)
        self.note(op="sync", path=path, size=size)

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        # Noted before: a kill in the midst leaves the old bytes or the new ones, and either is as good.
        shadow = None
        if self.exists(path):
            with self._replacing:
                self._replacements += 1
                shadow = str(self._replacements)
            shutil.copyfile(self.absolute(path), self._shadows / shadow)
        self.note(op="replacing", path=path, shadow=shadow)
        super().write_file(path, data, durable=durable)
        if durable:
            self.note(op="sync", path=path, size=len(data))
            if shadow is not None:
                (self._shadows / shadow).unlink()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.note(op="rename", old=old, new=new)

    def remove(self, path: str) -> None:
        super().remove(path)
        self.note(op="remove", path=path)

    def sync_all(self) -> None:
        sizes = {str(path.relative_to(self._root)): path.stat().st_size for path in _files_in(Path(self._root))}
        super().sync_all()
        for path, size in sizes.items():
            self.note(op="sync", path=path, size=size)


def journal_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.synced")


def shadows_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.replaced")


@dataclass
class _Kept:
    size: int = 0
    # Not synced since it was replaced: by what the old bytes are known, if there were any.
    is_replacement: bool = False
    shadow: str | None = None


def read_journal(path: Path) -> dict[str, _Kept]:
    """What the disk has for certain, by file."""
    kept: dict[str, _Kept] = {}
    if not path.exists():
        return kept
    for line in path.read_text().splitlines():
        event = json.loads(line)
        match event["op"]:
            case "sync":
                kept[event["path"]] = _Kept(event["size"])
            case "truncate":
                known = kept.setdefault(event["path"], _Kept())
                known.size = min(known.size, event["size"])
            case "replacing":
                known = kept.get(event["path"], _Kept())
                shadow = known.shadow if known.is_replacement else event["shadow"]
                kept[event["path"]] = _Kept(0, is_replacement=True, shadow=shadow)
            case "rename":
                old, new = event["old"], event["new"]
                for name in [name for name in kept if name == old or name.startswith(old + "/")]:
                    kept[new + name[len(old) :]] = kept.pop(name)
            case "remove":
                gone = event["path"]
                for name in [name for name in kept if name == gone or name.startswith(gone + "/")]:
                    del kept[name]
    return kept


def cut_power(root: Path, chance: random.Random) -> int:
    """How many bytes are gone. Afterwards everything that is there counts as synced."""
    journal, shadows = journal_of(root), shadows_of(root)
    kept = read_journal(journal)
    lost_bytes = 0
    for path in _files_in(root):
        known = kept.get(str(path.relative_to(root)), _Kept())
        size = path.stat().st_size
        if known.is_replacement:
            if chance.random() < 0.5:
                _bring_back(path, shadows / known.shadow if known.shadow else None)
            continue
        unsynced = size - known.size
        if unsynced <= 0:
            continue
        survives = chance.choice([0, 0, unsynced, chance.randint(0, unsynced)])
        lost_bytes += unsynced - survives
        if known.size + survives == 0:
            path.unlink()
            continue
        os.truncate(path, known.size + survives)
        if survives and chance.random() < 0.3:
            _tear(path, (survives + 1) // 2)
    with journal.open("w") as file:
        for path in _files_in(root):
            event = {"op": "sync", "path": str(path.relative_to(root)), "size": path.stat().st_size}
            file.write(json.dumps(event) + "\n")
    shutil.rmtree(shadows, ignore_errors=True)
    return lost_bytes


def _bring_back(path: Path, old: Path | None) -> None:
    if old is None:
        path.unlink()
    else:
        shutil.copyfile(old, path)


def _tear(path: Path, count: int) -> None:
    """The size reached the disk, the last bytes did not."""
    with path.open("r+b") as file:
        file.seek(-count, os.SEEK_END)
        file.write(bytes(count))


def _files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name not in _UNTOUCHED)
