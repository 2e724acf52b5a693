"""The actions of an agent: the two gains of its flow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym._controllers import GainMap
from bbrgym.baselines.policy_file import CWND_SCALES, MODELS
from bbrgym.checks import check_name, explains_fields, is_number
from bbrgym.envs.scenario import Scenario


@explains_fields
@dataclass(frozen=True)
class Action:
    """`(cwnd_gain, pacing_gain)` as a Box of [-1, 1] x [-1, 1].

    Both are mapped geometrically, `low * (high / low) ** ((action + 1) / 2)`: equal steps of an action are equal
    ratios, so doubling is as far from the middle as halving. For cwnd_gain this is what the gain has above 1, that is,
    the queue that the flow keeps in an empty link's BDPs: from a twentieth to twenty. The action (0, 0) is a cwnd_gain
    of 2, BBR's, and a pacing_gain of 1.1. Actions outside of the Box are clipped to it.

    With `cwnd_scale="ratio"` an action means a ratio of cwnd_gain itself, which may then be below 1.

    With `cwnd_scale="packets"` an action means a number of packets above or below one BDP instead,
    `cwnd_gain = 1 + sinh(8 * action) / bdp`, within the bounds: from tenths of a packet to 1,490. Flows share a link
    fairly when each has as many packets in the queue, so the same action is right for paths of any BDP. Exploration
    takes the same steps on all of them too: a step of a ratio is one packet of a BDP of 10, but a hundred of a BDP of
    1,000. A flow without an estimate of its BDP has a gain of 1.

    Args:
        cwnd_gain: lowest and highest congestion window, in multiples of the estimated bandwidth-delay product. A flow
            whose window is one BDP or less can only lose bandwidth. A flow with a short RTT needs many BDPs to have its
            share beside one that fills the queue.
        pacing_gain: lowest and highest pacing rate, in multiples of the estimated bandwidth. Nothing else probes for
            the agent: below 1 its estimate of the bandwidth can only fall. Above 1.2 packets only leave earlier, to
            wait in the queue.
        cwnd_scale: one of `CWND_SCALES`.
        model: one of `MODELS`, for all agent flows (docs/algorithms/agent.md).

    Raises:
        ValueError: bounds that are not two rising numbers > 0 (above 1 for a cwnd_gain by its excess), an unknown
            scale, or an unknown model.
    """

    cwnd_gain: tuple[float, float] = (1.05, 21.0)
    pacing_gain: tuple[float, float] = (1.0, 1.21)
    cwnd_scale: str = "excess"
    model: str = "default"

    def __post_init__(self) -> None:
        check_name("action.cwnd_scale", self.cwnd_scale, CWND_SCALES)
        check_name("action.model", self.model, MODELS)
        for name in ("cwnd_gain", "pacing_gain"):
            object.__setattr__(self, name, _bounds(name, getattr(self, name)))
        if self.cwnd_scale == "excess" and not self.cwnd_gain[0] > 1:
            raise ValueError(
                f"action.cwnd_gain must be above 1 with cwnd_scale='excess', got {self.cwnd_gain!r}; gains of 1 and "
                "less need cwnd_scale='ratio'"
            )

    @property
    def space(self) -> spaces.Box[np.float32]:
        """Return `Box(-1, 1, (2,), float32)`."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return Action, dataclasses.astuple(self)  # without the map, which does not pickle

    def on(self, scenario: Scenario) -> Scenario:
        """Return the scenario with this model in its agent flows; parameters that a flow has stay."""
        if self.model == "default":
            return scenario
        flows = []
        for flow in scenario.flows:
            if flow.algorithm == "agent":
                flow = dataclasses.replace(flow, parameters={"is_bbr_model": 1.0, **flow.parameters})
            flows.append(flow)
        return dataclasses.replace(scenario, flows=tuple(flows))

    @cached_property
    def gain_map(self) -> GainMap:
        """The same in C++."""
        return GainMap(self.cwnd_gain, self.pacing_gain, CWND_SCALES.index(self.cwnd_scale))

    def gains(self, action: npt.ArrayLike, bdp_packets: float = math.nan) -> tuple[float, float]:
        """Return the gains that an action means.

        Args:
            action: shape (2,).
            bdp_packets: the flow's estimate of its BDP; only `cwnd_scale="packets"` uses it.

        Returns:
            cwnd_gain and pacing_gain, within their bounds.

        Raises:
            ValueError: an action of another shape or with NaN.
        """
        values = check_action("action", action)
        cwnd, pacing = self.all_gains(values[np.newaxis], np.array([bdp_packets])).ravel().tolist()
        return cwnd, pacing

    def all_gains(
        self, actions: npt.ArrayLike, bdp_packets: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the gains that the actions of M flows mean.

        Args:
            actions: shape (M, 2).
            bdp_packets: the flows' estimates of their BDPs, shape (M,), NaN without one. Only `cwnd_scale="packets"`
                uses them.

        Returns:
            The cwnd_gains and the pacing_gains, shape (2, M), within their bounds.

        Raises:
            ValueError: actions of another shape or with NaN, or no BDPs where they are needed.
        """
        values = np.asarray(actions, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != 2:
            raise ValueError(f"actions must be numbers of shape (flows, 2), got {actions!r}")
        try:
            return self.gain_map.gains(values, bdp_packets)
        except ValueError as error:
            raise ValueError(f"{error}, got {actions!r}") from None

    def action(self, cwnd_gain: float, pacing_gain: float, bdp_packets: float = math.nan) -> npt.NDArray[np.float32]:
        """Return the action, shape (2,), for these gains or the nearest within the bounds; the inverse of `gains`.

        Raises:
            ValueError: a gain is not > 0.
        """
        if not (cwnd_gain > 0 and pacing_gain > 0):
            raise ValueError(f"gains must be > 0, got ({cwnd_gain!r}, {pacing_gain!r})")
        gains = np.array([[cwnd_gain], [pacing_gain]])
        action: npt.NDArray[np.float32] = self.all_actions(gains, np.array([bdp_packets]))[0]
        return action

    def all_actions(
        self, gains: npt.NDArray[np.float64], bdp_packets: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float32]:
        """Return the actions of M flows for these gains or the nearest within the bounds; the inverse of `all_gains`.

        Args:
            gains: shape (2, M), > 0.
            bdp_packets: the flows' estimates of their BDPs, shape (M,), NaN without one.

        Returns:
            Shape (M, 2), float32.
        """
        return self.gain_map.actions(gains, bdp_packets)


def check_action(name: str, action: Any) -> npt.NDArray[np.float64]:
    """Return an action, shape (2,); beyond [-1, 1] it is clipped later.

    Raises:
        ValueError: it is not two numbers; the message calls it `name`.
    """
    try:
        values = np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (2,) or np.isnan(values).any():
        raise ValueError(f"{name} must be two numbers in [-1, 1], for cwnd_gain and pacing_gain, got {action!r}")
    return values


def _bounds(name: str, given: Any) -> tuple[float, float]:
    good = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    if good and all(map(is_number, given)) and 0 < given[0] < given[1]:
        return float(given[0]), float(given[1])
    raise ValueError(f"{name} must be two rising bounds > 0, like [0.5, 4.0], got {given!r}")
