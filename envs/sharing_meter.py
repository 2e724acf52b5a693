"""How the flows of many runs share their links, measured while an `EngineBatch` simulates them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine_batch import EngineBatch
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import FairShares, Sharing

Array = npt.NDArray[np.float64]


class SharingMeter:
    """Measures runs from the end of a warm-up on. Steps are as long as the warm-up, so that one ends with it.

    Args:
        scenarios: of the runs; flows must be endless.
        warmup: fraction of a run that is not measured.
        until: fraction of a run at which the measured time ends; steps must end there, too.
    """

    def __init__(self, scenarios: Sequence[Scenario], warmup: float, until: float = 1.0) -> None:
        self._warmup = warmup
        of_scenario = {scenario: FairShares.of(scenario, warmup, until) for scenario in dict.fromkeys(scenarios)}
        self._shares = [of_scenario[scenario] for scenario in scenarios]
        durations_s = np.array([each.duration_s for each in scenarios])
        self._measured_s, self._until_s = warmup * durations_s, until * durations_s
        self._begin_s = np.zeros(len(scenarios))
        shape = len(scenarios), max(len(each.flows) for each in scenarios)
        self._active_s, self._received, self._delivered, self._rtt_ms = (np.zeros(shape) for _ in range(4))
        self._sent, self._retransmitted = np.zeros(shape), np.zeros(shape)

    def step_ms(self, scenario: Scenario) -> float:
        """Return how often `read` is to be called in a scenario, in ms."""
        return 1e3 * scenario.duration_s * (self._warmup or 1.0)

    def read(self, engines: EngineBatch, running: npt.NDArray[np.intp]) -> None:
        """Read the rows of the last step of these runs."""
        begin_s, end_s = self._begin_s[running], engines.time_s[running]
        self._begin_s[running] = end_s
        # A step's length is rounded to ns.
        is_measured = (begin_s >= self._measured_s[running] - 1e-6) & (end_s <= self._until_s[running] + 1e-6)
        index, lengths_s = running[is_measured], (end_s - begin_s)[is_measured]
        rows = np.nan_to_num(engines.flows[index, : self._received.shape[1]])
        delivered = rows[..., _DELIVERED]
        self._active_s[index] += rows[..., _IS_ACTIVE] * lengths_s[:, np.newaxis]
        self._received[index] += rows[..., _RECEIVED]
        self._delivered[index] += delivered
        self._rtt_ms[index] += rows[..., _RTT] * delivered
        self._sent[index] += rows[..., _SENT]
        self._retransmitted[index] += rows[..., _RETRANSMITTED]

    @property
    def throughputs_mbps(self) -> Array:
        """Shape (runs, flows): payload received in order, over the time in which each flow was active."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._received * 8e-6 / self._active_s

    @property
    def rtts_ms(self) -> Array:
        """Shape (runs, flows): the mean RTT of each flow's packets, NaN without any."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._rtt_ms / self._delivered

    @property
    def retransmission_rates(self) -> Array:
        """Shape (runs, flows): retransmitted over sent packets, NaN without any."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._retransmitted / self._sent

    def sharings(self) -> list[Sharing]:
        """Return how each run shared its link, when all are over."""
        measured = zip(self._shares, self._received, self._active_s, self.rtts_ms, strict=True)
        return [Sharing.of(fair, *(each[: len(fair.mbps)] for each in of_flows)) for fair, *of_flows in measured]


_IS_ACTIVE, _RECEIVED, _DELIVERED, _RTT, _SENT, _RETRANSMITTED = map(
    FLOW_COLUMNS.index,
    ("is_active", "received_bytes", "delivered_packets", "rtt_mean_ms", "sent_packets", "retransmitted_packets"),
)
