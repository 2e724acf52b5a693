"""An engine for tests, registered as "fake": the native one, which can fail and remembers what it was asked."""

import dataclasses
from collections.abc import Mapping

from bbrgym.baselines.registry import NS3_COMPARATORS
from bbrgym.envs.engine import EngineDescription, EngineError, Rows, register_engine
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.scenario import Scenario


class FakeEngine(NativeEngine):
    """A native engine without a batch, so that each scenario has an engine of its own.

    It also takes the names of ns-3's own algorithms (`cubic-stock`), and runs ours instead.

    Args:
        fail_at_step: raise EngineError in this step of every episode (1 is the first), or never.
        timeout_s: as of engine ns3; has no effect.
        transport: as of engine ns3; has no effect.
        start_limit_s: as of engine ns3; has no effect.
        threads: as of engine native; has no effect.
    """

    description = EngineDescription(title="fake", comparators=tuple(NS3_COMPARATORS))

    def __init__(
        self,
        fail_at_step: int | None = None,
        timeout_s: float = 10.0,
        transport: str = "tcp",
        start_limit_s: float = 10.0,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self.fail_at_step = fail_at_step
        self.is_closed = False
        self.resets: list[tuple[Scenario, int]] = []
        self._steps = 0

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        self.resets.append((scenario, seed))
        self._steps = 0
        flows = (dataclasses.replace(flow, algorithm=flow.algorithm.removesuffix("-stock")) for flow in scenario.flows)
        super()._request_reset(dataclasses.replace(scenario, flows=tuple(flows)), seed, policies)

    def _request_step(self, duration_ns: int) -> None:
        self._steps += 1
        super()._request_step(duration_ns)

    def _finish_request(self, scenario: Scenario) -> Rows:
        if self._steps and self._steps == self.fail_at_step:
            raise EngineError(f"the fake engine fails in step {self.fail_at_step}, as it was told to")
        return super()._finish_request(scenario)

    def close(self) -> None:
        super().close()
        self.is_closed = True


register_engine("fake", "fake_engine:FakeEngine")
