"""The first process of a host, in new namespaces: `python init.py NAME DISK SCRATCH SEEN...`

It makes the machine's files read-only, puts the host's own ones over them, says which process it is
to the machine, and ends when its standard input does. With it the kernel ends all processes of the
host, whoever started them. SEEN are directories of the machine that stay in sight; with a + before
it, one may be written to.
"""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_MOUNT_SETATTR: Final = 442  # the number of the system call, on every architecture
_RECURSIVE: Final = 0x8000
_READ_ONLY: Final = 1  # as a flag of mount, and as an attribute of a mount
_BIND: Final = 0x1000
_BIND_ALL: Final = _BIND | 0x4000
_HERE: Final = -100
OWN: Final = Path("/tmp")  # where a host has its disk
EMPTY: Final = ("/var/tmp", "/run", "/dev/shm")  # where it has a little memory


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace")]


def main(name: str, disk: str, scratch: str, *seen: str) -> None:
    process = os.readlink("/proc/self")  # as the machine numbers it, whose /proc this still is
    socket.sethostname(name)
    # Held open, since what they are below of will be out of sight.
    kept = {path: os.open(path.removeprefix("+"), os.O_PATH) for path in seen}
    _attributes("/", _Attributes(set=_READ_ONLY), _RECURSIVE)
    _mount(f"{disk}.hosts", "/etc/hosts", flags=_BIND)
    _mount(disk, str(OWN), flags=_BIND_ALL)
    _attributes(str(OWN), _Attributes(clear=_READ_ONLY), 0)
    if os.path.isdir(scratch):  # what other hosts have
        _mount("tmpfs", scratch, "tmpfs", _READ_ONLY)
    for path in EMPTY:
        _mount("tmpfs", path, "tmpfs")
    for path, descriptor in kept.items():
        place = path.removeprefix("+")
        os.makedirs(place, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", place, flags=_BIND_ALL)
        if path != place:
            _attributes(place, _Attributes(clear=_READ_ONLY), 0)
    _mount("sysfs", "/sys", "sysfs", _READ_ONLY)  # that of this host's network
    _mount("proc", "/proc", "proc")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come here, and leave nothing behind
    print(process, flush=True)
    sys.stdin.read()
    os._exit(0)


def _mount(what: str, where: str, kind: str = "", flags: int = 0) -> None:
    if _LIBC.mount(what.encode(), where.encode(), kind.encode(), flags, None):
        _fail(where)


def _attributes(path: str, attributes: _Attributes, flags: int) -> None:
    size = ctypes.sizeof(attributes)
    if _LIBC.syscall(_MOUNT_SETATTR, _HERE, path.encode(), flags, ctypes.byref(attributes), size):
        _fail(path)


def _fail(path: str) -> None:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
