"""Calls to the kernel that no code in the sandbox may make, as a filter for bubblewrap.

They are those that hold memory which belongs to no process, that reach into other processes, that
make sockets of other kinds than a network of its own keeps apart, or that only a system's own tools
need. Everything else that keeps code apart is bubblewrap's.
"""

import platform
import struct
from typing import Final

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
_X86_64 = {
    "shmget": 29,
    "semget": 64,
    "msgget": 68,
    "ptrace": 101,
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "vmsplice": 278,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "memfd_create": 319,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64 = {
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "vmsplice": 75,
    "unshare": 97,
    "kexec_load": 104,
    "ptrace": 117,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "perf_event_open": 241,
    "open_by_handle_at": 265,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "memfd_create": 279,
    "bpf": 280,
    "userfaultfd": 282,
}
_MACHINES: Final = {
    # The kernel's name of the machine, the first number of its other calls (x32), the calls,
    # those that make sockets, and the one that changes them.
    "x86_64": (0xC000003E, 0x40000000, _X86_64, (41, 53), 54),
    "aarch64": (0xC00000B7, None, _AARCH64, (198, 199), 208),
}
_FAMILIES: Final = (1, 2, 10, 16)
"""The sockets there may be, which a network of its own keeps apart: AF_UNIX, AF_INET, AF_INET6 and
AF_NETLINK. Others, such as AF_VSOCK, reach the machine whatever the network."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def program(machine: str | None = None) -> bytes | None:
    """Give the filter, as the kernel reads it."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    architecture, others, calls, sockets, change = known
    # A call of another architecture has other numbers: there is none.
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    steps.append((_LOAD, 0, 0, 0))
    if others is not None:
        steps += [(_AT_LEAST, 0, 1, others), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    for number in sorted({*_EVERYWHERE.values(), *calls.values()}):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | _EPERM)]
    # Both their numbers lead to what their first argument is; of it the kernel reads 32 bits.
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    steps += [(_EQUAL, 1, 0, sockets[0]), (_EQUAL, 0, len(families) + 2, sockets[1])]
    steps += [(_LOAD, 0, 0, 16), *families, (_RETURN, 0, 0, _ERROR | _EAFNOSUPPORT)]
    # The sizes of buffers (SO_SNDBUF, SO_RCVBUF of SOL_SOCKET) stay as they are, without a word.
    steps += [(_EQUAL, 0, 6, change), (_LOAD, 0, 0, 24), (_EQUAL, 0, 4, 1), (_LOAD, 0, 0, 32)]
    steps += [(_EQUAL, 1, 0, 7), (_EQUAL, 0, 1, 8), (_RETURN, 0, 0, _ERROR)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
