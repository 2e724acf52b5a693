"""The kernel's TCP with gains from outside: what its BPF program needs of this machine, and how it is compiled."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bbrgym.files import replace_file, user_cache

SOURCES: Final = tuple(
    Path(__file__).with_name(name)
    for name in ("agent.bpf.c", "agent_maps.h", "fixed_policy.h", "kernel_tcp.h", "bursts.h")
)
"""The program, and what it includes."""

_LEAST_KERNEL: Final = (6, 10)
"""Where `cong_control` has the arguments that the program expects."""

_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_BPF": 39}
COMMAND: Final = ("clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror")


def content_hash() -> str:
    """Return what identifies the program."""
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in SOURCES)).hexdigest()[:20]


def program_path() -> Path:
    """Return where the compiled program is, once it is compiled."""
    return user_cache("bpf") / f"{content_hash()}.o"


def missing() -> str | None:
    """Return why this machine or process cannot load the program, in words; None if nothing is known to be missing."""
    release = platform.release()
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if platform.system() != "Linux" or version < _LEAST_KERNEL:
        return f"it needs Linux {'.'.join(map(str, _LEAST_KERNEL))} or later, this is {platform.system()} {release}"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "the kernel must have BTF (CONFIG_DEBUG_INFO_BTF): there is no /sys/kernel/btf/vmlinux"
    identities = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    if identities != ["0", "0", "4294967295"]:
        return "it must be loaded in the initial user namespace, and this is another one"
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = int(re.findall(r"CapEff:\s*([0-9a-f]+)", status)[0], 16)
    if lacking := [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]:
        return f"this process must have {' and '.join(lacking)}, as root has"
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError:
        return "libbpf 1 is missing: apt-get install libbpf1"
    if not program_path().is_file() and shutil.which("clang") is None:
        return "clang is missing, which compiles the program: apt-get install clang libbpf-dev"
    return None


def compile_program() -> Path:
    """Compile the program unless it is, and return where; cached by its content.

    Raises:
        OSError: something is missing, or the compiler fails; the message says what.
    """
    if reason := missing():
        raise OSError(f"the kernel's TCP cannot be steered here: {reason}")
    compiled = program_path()
    if not compiled.is_file():
        compiled.parent.mkdir(parents=True, exist_ok=True)
        replace_file(compiled, _compile)
    return compiled


def _compile(to: Path) -> None:
    run = subprocess.run([*COMMAND, "-c", SOURCES[0], "-o", to], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise OSError(f"clang does not compile {SOURCES[0].name} (is libbpf-dev there?):\n{run.stderr.strip()[:2000]}")
