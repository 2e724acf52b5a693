"""Scripted policies: rules that a person wrote, in the same place as a trained network, as yardsticks and teachers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bbrgym.envs.action import Action
from bbrgym.envs.observation import Observation

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class BacklogRule:
    """Each flow keeps the same small number of packets in the queue.

        cwnd_gain = max(delivery_rate / max_bandwidth, floor) + backlog / bdp,    pacing_gain constant

    so that the window is delivery_rate x base_rtt + backlog, as in TCP Vegas and FAST TCP (Wei, Jin, Low and Hegde,
    IEEE/ACM Transactions on Networking 14(6), 2006, equation 2). Flows with the same backlog in the same queue have the
    same rate, whatever their RTTs (Little's law): fair, and with a queue of a few packets a flow. The floor is what
    keeps a lone flow with a large BDP from losing with every dip of its delivery rate what a backlog of a few packets
    takes seconds to win back: max_bandwidth, the largest of ten round trips, has not seen the dip.

    It knows nothing of rivals that fill the queue, of losses, and of a base_rtt that was never seen without a queue.

    Args:
        observation: what it sees: it needs `log_delivery_rate_ratio` and `log_bdp`.
        action: what it chooses from.
        backlog_packets: of each flow.
        pacing_gain: above 1, so that the window is what limits the flow.
        floor: 0 is FAST's window; None is 1 + backlog / bdp, with the flow's largest bandwidth for its present one, for
            which it need not know the BDP where actions are packets (`cwnd_scale`).

    Raises:
        ValueError: a feature is missing.
    """

    observation: Observation
    action: Action
    backlog_packets: float = 6.0
    pacing_gain: float = 1.25
    floor: float | None = 0.95

    def __post_init__(self) -> None:
        for name in self.needed:
            if name not in self.observation.features:
                raise ValueError(
                    f"the rule {self.kind!r} needs the features {', '.join(self.needed)}; {name!r} is missing"
                )

    @property
    def kind(self) -> str:
        """What it is, beside its numbers."""
        return "backlog"

    @property
    def needed(self) -> tuple[str, ...]:
        """The features that it is computed from."""
        if self.floor is not None:
            return ("log_delivery_rate_ratio", "log_bdp")
        return () if self.action.cwnd_scale == "packets" else ("log_bdp",)

    @property
    def inputs(self) -> int:
        """Length of an observation."""
        return len(self.observation.features) * self.observation.history

    @property
    def outputs(self) -> int:
        """Length of an action."""
        return 2

    def first_state(self, n: int) -> list[tuple[Array, Array]]:
        """It remembers nothing."""
        return []

    def forward(self, x: Array, state: list[tuple[Array, Array]]) -> tuple[Array, list[tuple[Array, Array]]]:
        """Actions of shape (N, 2)."""
        ones = np.ones(len(x))
        bdp = 10.0 ** self._latest(x, "log_bdp") if "log_bdp" in self.needed else _ANY_BDP * ones
        window = (
            ones if self.floor is None else np.maximum(2.0 ** self._latest(x, "log_delivery_rate_ratio"), self.floor)
        )
        gains = np.stack([window + self.backlogs(x) / bdp, self.pacing_gain * ones])
        return self.action.all_actions(gains, bdp), state

    def backlogs(self, x: Array) -> npt.NDArray[np.float64]:
        """What N flows want to have in the queue, in packets, shape (N,)."""
        return np.full(len(x), self.backlog_packets)

    def to_arrays(self) -> dict[str, Array]:
        """Its numbers."""
        floor = np.nan if self.floor is None else self.floor
        return {"rule": np.array([self.backlog_packets, self.pacing_gain, floor], dtype=np.float32)}

    def _latest(self, x: Array, name: str) -> npt.NDArray[np.float64]:
        """A feature of the latest step, shape (N,)."""
        first = len(self.observation.features) * (self.observation.history - 1)  # the latest step is the last one
        return x[:, first + self.observation.features.index(name)].astype(np.float64)


@dataclass(frozen=True)
class CompetitiveRule(BacklogRule):
    """`backlog`, and more of it beside a rival that never lets the queue run empty.

        backlog x (1 + zeal x (min_rtt / lowest_rtt - 1) x max(0, modesty x highest_bandwidth / delivery_rate - 1))

    It takes two signs together to tell CUBIC from flows of its own kind. That the RTT of the last ten seconds never
    came near the lowest RTT since the flow began says that the queue stands. That the flow has less than a part
    `modesty` of the most it ever had says that others take what it leaves; a few flows of its kind do not, and a link
    that became slower lets its one flow see an empty queue in ProbeRTT. Either sign alone would drive flows of this
    rule into each other's queues. So it competes for `modesty` of the link at the most.

    Args:
        zeal: how fast the backlog grows with both signs.
        modesty: the part of the highest bandwidth that it does not compete for more than.
    """

    floor: float | None = None
    zeal: float = 16.0
    modesty: float = 0.5

    @property
    def kind(self) -> str:
        """What it is, beside its numbers."""
        return "competitive"

    @property
    def needed(self) -> tuple[str, ...]:
        """The features that it is computed from."""
        return (*super().needed, "log_stale_rtt_ratio", "log_rate_decline")

    def backlogs(self, x: Array) -> npt.NDArray[np.float64]:
        """What N flows want to have in the queue, in packets, shape (N,)."""
        standing = 2.0 ** self._latest(x, "log_stale_rtt_ratio") - 1.0
        missing = np.maximum(self.modesty * 2.0 ** self._latest(x, "log_rate_decline") - 1.0, 0.0)
        return super().backlogs(x) * (1.0 + self.zeal * standing * missing)

    def to_arrays(self) -> dict[str, Array]:
        """Its numbers."""
        return {"rule": np.append(super().to_arrays()["rule"], np.array([self.zeal, self.modesty], dtype=np.float32))}


RULES: Final = {"backlog": BacklogRule, "competitive": CompetitiveRule}
"""Every rule by name."""


_ANY_BDP: Final = 1000.0
"""In packets: an action in packets is the same for all."""
