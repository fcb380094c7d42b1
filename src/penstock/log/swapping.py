"""How a compacted segment takes the place of those it was made of, so that a crash leaves the old or the new ones.

    1. its files are written as `.cleaned`, and synced           a crash drops them
    2. `.cleaned` becomes `.swap`, the .log first                a crash that leaves one `.cleaned` drops all
    3. the old files become `.deleted`                           from here on a crash finishes the swap
    4. `.swap` gets its final name, the .log first

Names and rules are Kafka's. `loading` has the other half: what a start makes of what it finds.
"""

from collections.abc import Sequence

from penstock.base.ports import Disk
from penstock.log.loading import CLEANED_SUFFIX, SWAP_SUFFIX
from penstock.log.segment import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, offset_name, rename_deleted


def swap_files(disk: Disk, directory: str, base_offsets: Sequence[int]) -> list[str]:
    """Steps 2 to 4, for the segment that was made of those at `base_offsets`. Returns what is to be removed. Raises
    DiskError; then the next start finishes or undoes it."""
    stem = f"{directory}/{offset_name(base_offsets[0])}"
    cleaned = [suffix for suffix in SEGMENT_SUFFIXES if disk.exists(stem + suffix + CLEANED_SUFFIX)]
    for suffix in cleaned:
        disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
    doomed = []
    for base_offset in base_offsets:
        for suffix in SEGMENT_SUFFIXES:
            # The producers' state before the first one is that before its replacement.
            if suffix == SNAPSHOT_SUFFIX and base_offset == base_offsets[0]:
                continue
            path = f"{directory}/{offset_name(base_offset)}{suffix}"
            if disk.exists(path):
                doomed.append(rename_deleted(disk, path))
    for suffix in cleaned:
        disk.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
    return doomed


def discard(disk: Disk, directory: str, base_offset: int) -> None:
    """Drops what compaction has written of a segment."""
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(f"{directory}/{offset_name(base_offset)}{suffix}{CLEANED_SUFFIX}")


def discard_all(disk: Disk, directory: str) -> None:
    """Drops what a pass that was broken off has written: never where step 2 was, whose other half would then count."""
    for name in disk.list(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{directory}/{name}")
