"""What this process takes of the machine, as every page of metrics begins: CPU, memory, descriptors, since when."""

import os
import resource
import time

from penstock.base.metrics_text import counters, gauges

_STARTED_S = time.time()


def process_figures() -> str:
    return counters(("process_cpu_seconds_total", "User and system time.", round(time.process_time(), 3))) + gauges(
        ("process_resident_memory_bytes", "Memory in use.", resident_bytes()),
        ("process_open_fds", "Open files and sockets.", open_descriptors()),
        ("process_start_time_seconds", "When it started.", round(_STARTED_S, 3)),
    )


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # No /proc: the largest it ever was, in the unit of this system.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return -1
