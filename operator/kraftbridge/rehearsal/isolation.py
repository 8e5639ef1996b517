"""Takes the network away from this process and all that it starts, except the loopback interface.

A namespace of the network has no route out (unshare(2), CLONE_NEWNET). An ordinary user needs a namespace of users as
well, where the machine allows it (user_namespaces(7)). Must be called before the first thread starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

_NEW_NETWORK: Final = 0x40000000
_NEW_USERS: Final = 0x10000000
_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS
_UP: Final = 1  # IFF_UP
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def isolate() -> str:
    """Leave only the loopback interface.

    Returns
    -------
    The reason why the machine does not allow it; the empty string if it does.
    """
    user = os.geteuid()
    group = os.getegid()
    if _LIBC.unshare(_NEW_NETWORK) != 0:
        if _LIBC.unshare(_NEW_NETWORK | _NEW_USERS) != 0:
            return os.strerror(ctypes.get_errno())
        # Each process keeps its own user, and with it the files that it may read.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
    return ""
