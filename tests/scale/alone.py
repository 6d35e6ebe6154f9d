"""Run a command in a network namespace of its own, where nothing but this machine's loopback can be reached.

    python -m tests.scale.alone COMMAND …

It needs the right to make one: root, or a system that lets users have namespaces. Without it, it ends with an error.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # of unshare(2)
SET_FLAGS, UP, RUNNING = 0x8914, 0x1, 0x40  # of netdevice(7)


def main(command: list[str]) -> None:
    _unshare(NEW_NET if os.getuid() == 0 else NEW_USER | NEW_NET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP | RUNNING))
    os.execvp(command[0], command)


def _unshare(flags: int) -> None:
    """Leave the network; as another user than root, become root of a namespace of users first."""
    user, group = os.getuid(), os.getgid()
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags):
        reason = os.strerror(ctypes.get_errno())
        sys.exit(f"no network namespace can be had ({reason}): run as root, or allow user namespaces")
    if flags & NEW_USER:
        for name, content in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
            Path("/proc/self", name).write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
