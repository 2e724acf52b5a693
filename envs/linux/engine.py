"""`engine=linux`: real time on this machine's kernel, in a worker process for each engine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Final

from bbrgym.baselines.registry import LINUX_PREFIX, linux_controls
from bbrgym.checks import check_number
from bbrgym.envs.engine import EngineDescription, EngineUnavailableError
from bbrgym.envs.linux import bpf
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.worker.engine import WorkerEngine

MAX_LATENESS_MS: Final = 1.0


class LinuxEngine(WorkerEngine):
    """Runs a scenario in real time on this machine's network stack (docs/linux.md).

    Senders and receivers are in two network namespaces; an emulator between them has the native engine's links. Our
    controllers run over UDP, with the native engine's sender and receiver; `linux-cubic` and the like are the kernel's
    own TCP, and so are flows with `transport="kernel"`, with the gains of an agent or a policy (docs/kernel.md); both
    ends of a flow `command` are programs of somebody else's stack (docs/stacks.md). A step takes as long as it says,
    and no two runs are equal.

    Args:
        max_lateness_ms: bound of the lateness of the links, in ms. An episode has a flaw if more than 0.1 % of its
            packets left them later than that after the moment that the scenario's rates and RTT say. 1 ms is a tenth of
            an RTT of 10 ms, and what a packet of 1000 bytes takes at 8 Mbit/s.
        timeout_s: how long an answer may take, in s, in addition to the duration of the step.
        start_limit_s: see `WorkerEngine`.

    Raises:
        EngineUnavailableError: bbrgym was built without this engine, or a package of the extra `ns3gym` is missing.
        ValueError: an argument is bad.
    """

    limit_per_simulated_s = 1.0

    @classmethod
    def describe(cls, **options: Any) -> EngineDescription:
        """Return the description on this machine: its kernel decides the numbers and has the comparators."""
        max_lateness_ms = options.get("max_lateness_ms", MAX_LATENESS_MS)
        check_number("max_lateness_ms", max_lateness_ms, above=0)
        return EngineDescription(
            title="Linux",
            comparators=tuple(LINUX_PREFIX + name for name in linux_controls()),
            options={
                "kernel": platform.release(),
                "agent": bpf.content_hash(),
                "max_lateness_ms": float(max_lateness_ms),
            },
            extensions=("bbrgym._linux",),
            runs_commands=True,
            has_kernel=True,
            is_real_time=True,
        )

    def __init__(
        self, max_lateness_ms: float = MAX_LATENESS_MS, timeout_s: float = 10.0, start_limit_s: float = 10.0
    ) -> None:
        description = self.describe(max_lateness_ms=max_lateness_ms)
        super().__init__(description, (str(bpf.program_path()),), timeout_s, start_limit_s)
        self._max_lateness_ms = max_lateness_ms

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        if any(flow.transport == "kernel" for flow in scenario.flows):
            try:
                bpf.compile_program()
            except OSError as error:
                raise EngineUnavailableError(str(error)) from None
        super()._request_reset(scenario, seed, policies)

    @property
    def flaw(self) -> str | None:
        """See `Engine.flaw`: the link was late, or steps were missed because decisions came too late."""
        timing = self.timing
        if not timing:
            return None
        if timing["late_p999_ms"] > self._max_lateness_ms:
            return (
                f"0.1 % of the packets left {timing['late_p999_ms']:.2g} ms late or later, the bound is "
                f"{self._max_lateness_ms:g} ms (max_lateness_ms): this machine was busy"
            )
        if timing["missed_steps"] > 0:
            return (
                f"{timing['missed_steps']:.0f} steps were missed: a decision came "
                f"{timing['decision_late_max_ms']:.2g} ms late"
            )
        return None
