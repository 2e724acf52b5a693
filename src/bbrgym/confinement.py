"""Confine a child process that is about to run somebody else's code (docs/score.md says what this contains).

Linux only, and for a process with one thread. Each layer that the system lacks is named in what `confine` returns;
the others hold without it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def confine(mebibytes: int, seconds: int, readable: Sequence[Path]) -> list[str]:
    """Give up what this process may do: its memory, its time, the network, and files.

    Args:
        mebibytes: how much more memory it may take.
        seconds: how much processor time it may take; SIGXCPU ends it then.
        readable: the folders and files that it may read; it may write none.

    Returns:
        What is not contained, because the system lacks it, one sentence each.
    """
    missing = []
    _limit(resource.RLIMIT_AS, _address_space() + mebibytes * 2**20)
    _limit(resource.RLIMIT_CPU, round(_used_seconds()) + seconds, spare=1)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_MSGQUEUE):
        _limit(kind, 0)
    _limit(resource.RLIMIT_NPROC, 0)  # of no effect for root: `forbid_calls` is
    if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        missing.append("no user namespaces: the network is only closed by the filter of system calls")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if not _restrict_files(readable):
        missing.append("no Landlock: files can be opened while the code is loaded")
    return missing


def end_with_parent() -> None:
    """Let the kernel end this process as soon as its parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, 9)


class TimeLimit:
    """Ends the code of somebody else's Python function that does not return; in the main thread of a process.

    It raises `NeverReturnsError` where the code is. Where the interpreter cannot raise it, as in a long loop in C, the
    process ends by SIGVTALRM after twice the processor time.
    """

    def __init__(self) -> None:
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, self._raise)
        self._text = ""

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """Let the block take `seconds` of processor time, and twice as long by the clock; `what` is for the error."""
        self._text = f"{what} took longer than {seconds:g} s"
        signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
        try:
            yield
        finally:
            for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF, signal.ITIMER_VIRTUAL):
                signal.setitimer(timer, 0.0)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise NeverReturnsError(self._text)


class NeverReturnsError(BaseException):
    """Code has taken longer than it may. No `except Exception` of that code catches it."""


def forbid_calls(is_loading: bool) -> list[str]:
    """Let the kernel end this process on any system call but those that computing needs; a second call allows fewer.

    Args:
        is_loading: whether files may be opened too, as loading a shared object needs.

    Returns:
        What is not contained, because the system lacks it, one sentence each.
    """
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        return [f"no filter of system calls for {platform.machine()}: it can start processes and send signals"]
    architecture, computing, loading = numbers
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    allowed = [*computing, *loading] if is_loading else [*computing]
    if not _install_filter(architecture, allowed):
        return ["no filter of system calls (seccomp): it can start processes and send signals"]
    return []


_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CLONE_NEWIPC: Final = 0x08000000


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _limit(kind: int, value: int, spare: int = 0) -> None:
    """Set a limit; `spare` is how much later the kernel no longer sends a signal that can be caught, but SIGKILL."""
    _, hard = resource.getrlimit(kind)
    most = value + spare if hard == resource.RLIM_INFINITY else min(value + spare, hard)
    resource.setrlimit(kind, (min(value, most), most))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def _used_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# Landlock, linux/landlock.h: the rights of ABI 1, what ABIs 2, 3 and 5 add, and the scopes of ABI 6.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_RIGHTS: Final = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_ALL_SCOPES: Final = 0b11


def _restrict_files(readable: Iterable[Path]) -> bool:
    """Allow reading these alone, and signals to and sockets of no other process; return whether the system can."""
    abi = _LIBC.syscall(_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return False
    rights = _RIGHTS[min(abi, 5)]
    attributes = struct.pack("<QQQ", rights, 0b11 if abi >= 4 else 0, _ALL_SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _LIBC.syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return False
    for path in readable:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _EXECUTE | _READ_FILE | (_READ_DIR if path.is_dir() else 0)
        _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", allowed, opened), 0)
        os.close(opened)
    is_done = bool(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    os.close(ruleset)
    return is_done


# seccomp, linux/seccomp.h and linux/filter.h. Numbers of system calls: asm/unistd.h of each architecture.
_COMPUTING_X86: Final = (
    0,  # read
    1,  # write
    3,  # close
    5,  # fstat
    8,  # lseek
    9,  # mmap
    10,  # mprotect
    11,  # munmap
    12,  # brk
    13,  # rt_sigaction
    14,  # rt_sigprocmask
    15,  # rt_sigreturn
    17,  # pread64
    20,  # writev
    24,  # sched_yield
    25,  # mremap
    28,  # madvise
    35,  # nanosleep
    39,  # getpid
    60,  # exit
    186,  # gettid
    202,  # futex
    204,  # sched_getaffinity
    228,  # clock_gettime
    230,  # clock_nanosleep
    231,  # exit_group
    262,  # newfstatat
    318,  # getrandom
    332,  # statx
    334,  # rseq
)
_LOADING_X86: Final = (257, 2, 89, 267, 21, 269, 79, 4, 6, 72, 16, 131, 157)
"""openat open readlink readlinkat access faccessat getcwd stat lstat fcntl ioctl sigaltstack, and prctl for the second
filter."""

_COMPUTING_ARM: Final = (
    63,  # read
    64,  # write
    57,  # close
    80,  # fstat
    62,  # lseek
    222,  # mmap
    226,  # mprotect
    215,  # munmap
    214,  # brk
    134,  # rt_sigaction
    135,  # rt_sigprocmask
    139,  # rt_sigreturn
    67,  # pread64
    66,  # writev
    124,  # sched_yield
    216,  # mremap
    233,  # madvise
    101,  # nanosleep
    172,  # getpid
    93,  # exit
    178,  # gettid
    98,  # futex
    123,  # sched_getaffinity
    113,  # clock_gettime
    115,  # clock_nanosleep
    94,  # exit_group
    79,  # newfstatat
    278,  # getrandom
    291,  # statx
    293,  # rseq
)
_LOADING_ARM: Final = (56, 78, 48, 17, 25, 29, 132, 167)

_CALLS: Final = {
    "x86_64": (0xC000003E, _COMPUTING_X86, _LOADING_X86),
    "aarch64": (0xC00000B7, _COMPUTING_ARM, _LOADING_ARM),
}
"""By machine: the audit number of its architecture, the calls of computing, and those of loading."""

_LOAD_WORD, _EQUALS, _RETURN = 0x20, 0x15, 0x06
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000


def _install_filter(architecture: int, allowed: Sequence[int]) -> bool:
    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("<HBBI", code, if_true, if_false, value)

    # Load the architecture; end the process unless it is this one. Load the number; jump to the end if it is allowed.
    parts = [instruction(_LOAD_WORD, 4), instruction(_EQUALS, architecture, 0, len(allowed) + 1)]
    parts.append(instruction(_LOAD_WORD, 0))
    parts += [instruction(_EQUALS, number, len(allowed) - place) for place, number in enumerate(allowed)]
    parts += [instruction(_RETURN, _KILL_PROCESS), instruction(_RETURN, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(parts))
    program = struct.pack("<HxxxxxxQ", len(parts), ctypes.addressof(code))
    return bool(_LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0) == 0)
