"""Scripted policies: hand-written rules in place of a trained network, as yardsticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bbrgym.baselines.policy_file import Array
from bbrgym.envs.action import Action
from bbrgym.envs.observation import Observation

_ANY_BDP: Final = 1000.0
"""In packets; where actions are in packets, every BDP leads to the same action."""


@dataclass(frozen=True)
class BacklogRule:
    """Each flow keeps the same small number of packets in the queue.

        cwnd_gain = 1 + backlog / bdp,    pacing_gain constant

    so that the window is max_bandwidth x min_rtt + backlog; with the delivery rate for max_bandwidth it would be that
    of TCP Vegas and FAST TCP (Wei, Jin, Low and Hegde, IEEE/ACM Transactions on Networking 14(6), 2006, equation 2).
    Flows with the same backlog in the same queue have the same rate whatever their RTTs (Little's law): this is fair,
    with a queue of a few packets per flow.

    A lone flow on a fast link has no queue to measure: delays below `noise_ms` are those of hosts and lower layers, and
    a few packets more are a short queue there. So the backlog is (noise / queueing delay)^0.75 times as large, at most
    four times. All flows of a link measure the same delay, so they keep the same number of packets.

    The rule ignores rivals that fill the queue, losses, and that min_rtt may never have been seen without a queue. If
    it observes the flow's preference p, the backlog is 2^(2 p - 1) times as large: from a half to twice.

    Args:
        observation: must have `log_bdp`, unless actions are in packets (`cwnd_scale`).
        action: the space of actions.
        backlog_packets: of each flow.
        pacing_gain: above 1, so that the window is what limits the flow.
        noise_ms: queueing delays that may be noise, in ms; above 0 it needs `log_queueing_delay`.

    Raises:
        ValueError: a feature is missing.
    """

    observation: Observation
    action: Action
    backlog_packets: float = 6.0
    pacing_gain: float = 1.1
    noise_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in self.needed:
            if name not in self.observation.features:
                raise ValueError(
                    f"the rule {self.kind!r} needs the features {', '.join(self.needed)}; {name!r} is missing"
                )

    @property
    def kind(self) -> str:
        """What it is besides its numbers, for the content hash."""
        return "backlog"

    @property
    def needed(self) -> tuple[str, ...]:
        """The features that it uses."""
        noise = ("log_queueing_delay",) if self.noise_ms > 0 else ()
        return noise if self.action.cwnd_scale == "packets" else ("log_bdp", *noise)

    @property
    def inputs(self) -> int:
        """Length of an observation."""
        return len(self.observation.features) * self.observation.history

    @property
    def outputs(self) -> int:
        """Length of an action."""
        return 2

    def forward(self, x: Array) -> Array:
        """Return actions of shape (N, 2) for observations of shape (N, inputs)."""
        ones = np.ones(len(x))
        bdp = 10.0 ** self._latest(x, "log_bdp") if "log_bdp" in self.needed else _ANY_BDP * ones
        gains = np.stack([1.0 + self.backlogs(x) / bdp, self.pacing_gain * ones])
        return self.action.all_actions(gains, bdp)

    def backlogs(self, x: Array) -> npt.NDArray[np.float64]:
        """Return the target backlogs of N flows, in packets, shape (N,)."""
        backlogs = self.backlog_packets * 2.0 ** (2.0 * self._preference(x) - 1.0)
        if self.noise_ms > 0:
            delay_ms = 10.0 ** self._latest(x, "log_queueing_delay")
            backlogs *= np.clip((self.noise_ms / delay_ms) ** 0.75, 1.0, 4.0)
        return backlogs

    def _preference(self, x: Array) -> npt.NDArray[np.float64]:
        """Return what the flows prefer, from 0, the least delay, to 1, their share; 1/2 if it is not observed."""
        return self._latest(x, "preference") if "preference" in self.observation.features else np.full(len(x), 0.5)

    def to_arrays(self) -> dict[str, Array]:
        """Return its numbers, for the content hash."""
        return {"rule": np.array([self.backlog_packets, self.pacing_gain, self.noise_ms], dtype=np.float32)}

    def _latest(self, x: Array, name: str) -> npt.NDArray[np.float64]:
        """Return a feature of the latest step, shape (N,)."""
        first = len(self.observation.features) * (self.observation.history - 1)  # the latest step comes last
        return x[:, first + self.observation.features.index(name)].astype(np.float64)


RULES: Final = {"backlog": BacklogRule}
"""Every rule by name."""
