"""Memory and processor time of running processes, from ``/proc`` (proc(5)). A process that has ended raises `OSError`."""

from __future__ import annotations

import os
from pathlib import Path

_MIB_OF_A_PAGE = os.sysconf("SC_PAGE_SIZE") / 2**20
_TICKS = os.sysconf("SC_CLK_TCK")


def resident_mib(process: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _MIB_OF_A_PAGE


def peak_mib(process: int) -> int:
    """Return the highest resident memory that a process has had (``VmHWM``)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:")), 0)


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process, without that of its children."""
    fields = _stat(process)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def parent(process: int) -> int:
    """Return the id of a process' parent."""
    return int(_stat(process)[1])


def command(process: int) -> list[bytes]:
    """Return the command line of a process."""
    return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")


def _stat(process: int) -> list[str]:
    # The second field, the program's name, may contain spaces.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
