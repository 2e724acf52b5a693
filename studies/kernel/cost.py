"""What an ACK costs with an agent's gains, beside the kernel's BBR and CUBIC.

`python -m studies.kernel.cost` prints JSON. It needs what docs/kernel.md says, and bpftool. Every algorithm sends over
a loopback of its own, through a token bucket of 200 Mbit/s that passes single packets, so that all have as many ACKs.
The time of a program per ACK is the kernel's own statistic, which is on as long as this process lasts. The kernel's BBR
and CUBIC run through programs that do nothing else (plain.bpf.c), so that they are measured in the same way.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bbrgym import Flow, Scenario, _linux
from bbrgym.baselines.policy_file import KERNEL_REFERENCE, read_policy
from bbrgym.envs.linux import bpf

SECONDS: Final = 0.7
ROUNDS: Final = 12
"""All algorithms take turns so often. The least value of each counts: others use the processor too."""
EVERY_ACK: Final = "policy that decides on every ACK"
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "bbrgym_cubic": ("pass_cubictcp_cong_avoid", "pass_cubictcp_acked"),
    "bbrgym_bbr": ("pass_bbr_main",),
    "agent": ("agent_main",),
    "policy": ("agent_main",),
    EVERY_ACK: ("agent_main",),
}
"""What is measured, and the programs that an ACK runs."""

_PLAIN: Final = Path(__file__).with_name("plain.bpf.c")
_HAS_LINK: Final = 1 << 13  # BPF_F_LINK
_SYSCALLS: Final = {"x86_64": 321, "aarch64": 280}  # bpf
_LINK_CREATE, _ENABLE_STATS, _STRUCT_OPS = 28, 32, 44
_SETUP: Final = "ip link set lo up mtu 1500; tc qdisc add dev lo root tbf rate 200mbit burst 5kb limit 200kb"


def main() -> None:
    """Measure in a network namespace of this process's own, and print {name: ns per ACK}."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000) != 0:  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    subprocess.run(["sh", "-c", _SETUP], check=True)
    _bpf(_ENABLE_STATS, struct.pack("<I", 0))
    keep = _load_plain()
    rounds = [{name: _measure(name, programs) for name, programs in PROGRAMS.items()} for _ in range(ROUNDS)]
    del keep
    print(json.dumps({name: min(found[name] for found in rounds) for name in PROGRAMS}))


def _measure(name: str, programs: tuple[str, ...]) -> float:
    """Return the time of the programs per ACK, in ns."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        steered = _steer(sender, name)
        sender.connect(server.getsockname())
        receiver = server.accept()[0]

        def receive() -> None:
            buffer = bytearray(1 << 18)
            while receiver.recv_into(buffer):
                pass

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        chunk, end = bytes(1 << 16), time.monotonic() + SECONDS
        while time.monotonic() < end:
            sender.sendall(chunk)
        sender.shutdown(socket.SHUT_WR)
        thread.join()
        ns_per_ack = time_per_ack(programs)
        receiver.close()
    del steered
    return ns_per_ack


def _steer(sender: socket.socket, name: str) -> Any:
    """Make a socket use an algorithm of `PROGRAMS`; what is returned must live as long."""
    if name.startswith("bbrgym_"):
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        return None
    flow = Scenario(flows=(Flow("agent" if name == "agent" else "policy", transport="kernel"),)).to_dict()["flows"][0]
    if name != "agent":
        policy = read_policy(KERNEL_REFERENCE)
        if name == EVERY_ACK:
            policy = replace(policy, spec={**policy.spec, "env": {"step_ms": 1e-3, "step_rtts": None}})
        flow["policy"] = policy.to_bytes()
    return _linux.SteeredSocket(sender.fileno(), flow, str(bpf.compile_program()))


def time_per_ack(programs: tuple[str, ...]) -> float:
    """Return the time of the programs that were loaded last per run of the first, in ns."""
    shown = json.loads(subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, check=True).stdout)
    of = [[it for it in shown if it.get("name") == name] for name in programs]
    latest = [max(same, key=lambda it: int(it["id"])) for same in of]
    return float(sum(it.get("run_time_ns", 0) for it in latest) / latest[0]["run_cnt"])


def _load_plain() -> Any:
    """Load plain.bpf.c, with links, and return what keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "plain.o"
        subprocess.run([*bpf.COMMAND, f"-I{bpf.SOURCES[0].parent}", "-c", _PLAIN, "-o", compiled], check=True)
        library = ctypes.CDLL("libbpf.so.1")
        for function in (library.bpf_object__open_file, library.bpf_object__find_map_by_name):
            function.restype = ctypes.c_void_p
        library.bpf_map__attach_struct_ops.restype = ctypes.c_void_p
        loaded = ctypes.c_void_p(library.bpf_object__open_file(str(compiled).encode(), None))
    maps = [
        ctypes.c_void_p(library.bpf_object__find_map_by_name(loaded, f"plain_{it}".encode())) for it in ("bbr", "cubic")
    ]
    for operations in maps:
        library.bpf_map__set_map_flags(operations, ctypes.c_uint32(_HAS_LINK))
    if library.bpf_object__load(loaded) != 0:
        raise OSError(f"the kernel does not load {_PLAIN.name}")
    for operations in maps:
        library.bpf_map__attach_struct_ops(operations)
        if library.libbpf_minor_version() < 2:  # as in envs/linux/kernel_agent.cc
            _bpf(_LINK_CREATE, struct.pack("<III", library.bpf_map__fd(operations), 0, _STRUCT_OPS))
    return loaded


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes.ljust(120, b"\0"), 120)
    descriptor = int(libc.syscall(_SYSCALLS[os.uname().machine], command, given, 120))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return descriptor


if __name__ == "__main__":
    main()
