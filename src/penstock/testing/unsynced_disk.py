"""A real disk whose data nobody reads after this process: it is never synced."""

from penstock.broker.ports import RealDisk, RealFile


class UnsyncedDisk(RealDisk):
    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        super().write_file(path, data, durable=False)

    def sync_file(self, file: RealFile) -> None:
        return

    def has_synced_names(self, path: str) -> bool:
        # Else the kernel is asked to sync the file without us.
        return False
