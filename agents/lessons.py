"""What a student with memory learns from: what flows saw, and a table of what actions reach there.

Importing it loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bbrgym.agents.torch_network import TorchNetwork
from bbrgym.baselines.policy_file import Array

FIRST_STEPS, FIRST_WEIGHT = 20, 0.2
"""How many steps of a flow count less, and how much: nobody can know the path yet."""
RATE_STEPS: Final = 20
"""Over how many steps the rate of a flow is averaged: longer than most paths, shorter than what a path lasts."""
LEAST_SHARE: Final = 0.02
"""Of the rates of a link, at least."""
LEAST_PART: Final = 0.3
"""A flow that takes part in a smaller fraction of its episode teaches nothing about its path."""
OUTSIDE: Final = 5.0
"""The loss of an action outside of the table, per unit."""


class Seen(NamedTuple):
    """What K flows observed before each of their first T steps, from their own start on."""

    observations: Array  # (K, T, length of an observation)
    took_part: npt.NDArray[np.bool_]  # (K, T)
    actions: Array  # (K, T): for cwnd_gain, with noise
    rates: Array  # (K, T): what the link delivered, averaged over `RATE_STEPS`
    scenarios: npt.NDArray[np.intp]  # (K,): rising; flows of the same one share its link
    first: npt.NDArray[np.intp]  # (K,): how many steps after the start of the episode


def sequences(
    observations: Array,
    actions: Array,
    delivered: npt.NDArray[np.float64],
    took_part: npt.NDArray[np.bool_],
    scenarios: npt.NDArray[np.intp],
    lengths: npt.NDArray[np.intp],
) -> Seen:
    """Return the sequences of the flows that take part, each from its own start on, as a policy in an engine has them.

    Args:
        observations: before each step and after the last, shape (T + 1, M, length).
        actions: for cwnd_gain, shape (T, M).
        delivered: packets of each step, shape (T, M).
        took_part: shape (T, M).
        scenarios: shape (M,).
        lengths: steps of the flows' episodes, of which T is the longest, shape (M,).
    """
    steps = len(took_part)
    kept = np.flatnonzero(took_part.sum(axis=0) > LEAST_PART * lengths)
    first = took_part[:, kept].argmax(axis=0)
    places = np.arange(steps) + first[:, np.newaxis]  # (K, T)
    is_there = places < steps
    places = np.minimum(places, steps - 1)
    flows = kept[:, np.newaxis]
    rates = _averaged(np.where(took_part, np.nan_to_num(delivered), 0.0))
    return Seen(
        observations=observations[places, flows],
        took_part=took_part[places, flows] & is_there,
        actions=actions[places, flows],
        rates=rates[places, flows],
        scenarios=scenarios[kept],
        first=first,
    )


def _averaged(values: npt.NDArray[np.float64]) -> Array:
    """Return means over the steps around each one, shape (T, M); at the ends over those that there are."""
    steps = np.arange(len(values))
    begins, ends = np.maximum(steps - RATE_STEPS // 2, 0), np.minimum(steps + RATE_STEPS // 2 + 1, len(values))
    total = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
    means: Array = ((total[ends] - total[begins]) / (ends - begins)[:, np.newaxis]).astype(np.float32)
    return means


def joined(parts: Sequence[Seen]) -> Seen:
    """Return all sequences, as long as the longest."""
    steps = max(part.took_part.shape[1] for part in parts)

    def padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return (
            values
            if values.ndim == 1
            else np.pad(values, [(0, 0), (0, steps - values.shape[1]), *[(0, 0)] * (values.ndim - 2)])
        )

    return Seen(*(np.concatenate([padded(each) for each in arrays]) for arrays in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Table:
    """What actions reach in windows of scenarios, if all flows of a link keep them.

    Attributes:
        actions: rising, shape (C,).
        values: shape (scenarios, windows, C).
    """

    actions: torch.Tensor
    values: torch.Tensor

    def at(self, scenarios: torch.Tensor, windows: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return what actions reach by linear interpolation; arguments and result have the same shape."""
        return interpolated(self.values[scenarios, windows], self.actions, actions)

    def best(self, scenarios: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        """Return the most that an action reaches."""
        return self.values.amax(dim=2)[scenarios, windows]

    def outside(self, actions: torch.Tensor) -> torch.Tensor:
        """Return how far actions are outside of the table."""
        return torch.relu(actions - self.actions[-1]) + torch.relu(self.actions[0] - actions)


@dataclass(frozen=True)
class Lesson:
    """What a student learns from in a round.

    Attributes:
        seen: by the flows. Scenarios are rows of the tables.
        steps: of each scenario, shape (scenarios,).
        cwnd: of the action for cwnd_gain.
        pacing: of the action for pacing_gain; None if this stays as it is.
        base: what the actions of the tables are added to, shape (K, T, 2); None for the actions themselves.
        queued: the packets that actions keep in the queue, as a table of one scenario and window; None if flows do
            not share by them.
    """

    seen: Seen
    steps: torch.Tensor
    cwnd: Table
    pacing: Table | None = None
    base: Array | None = None
    queued: Table | None = None

    def batches(self, size: int, rng: np.random.Generator) -> list[npt.NDArray[np.intp]]:
        """Return the flows of batches of about this size, each of whole links, in a random order."""
        links, begins = np.unique(self.seen.scenarios, return_index=True)
        flows_of = np.split(np.arange(len(self.seen.scenarios)), begins[1:])
        count = min(len(links), math.ceil(len(self.seen.scenarios) / size))
        parts = np.array_split(rng.permutation(len(links)), count)
        return [np.concatenate([flows_of[link] for link in part]) for part in parts]

    def loss(
        self, student: TorchNetwork, flows: npt.NDArray[np.intp], inputs: tuple[Array, Array]
    ) -> tuple[torch.Tensor, float]:
        """Return the loss and the regret of all flows of some links.

        In a step of a link its flows have what the mean of their actions reaches, times how evenly they share: Jain's
        index of the rates that they had, each changed as much as its action changes the packets that it keeps in the
        queue. So a flow that had more than the others, for what it takes for the length of its path is too long, learns
        to keep less. Beside a teacher, only the change counts.

        Args:
            student: that chooses.
            flows: of `seen`.
            inputs: mean and scale that standardise observations.
        """
        mean, scale = map(torch.as_tensor, inputs)
        actions = student((torch.as_tensor(self.seen.observations[flows]) - mean) * scale)
        moves = actions if self.base is None else actions - torch.as_tensor(self.base[flows])
        part = torch.as_tensor(self.seen.took_part[flows], dtype=torch.float32)
        weight = part.clone()
        weight[:, :FIRST_STEPS] *= FIRST_WEIGHT
        names, link = np.unique(self.seen.scenarios[flows], return_inverse=True)
        links = _Links(torch.as_tensor(link), torch.as_tensor(self.seen.first[flows]), len(names))
        scenarios = torch.as_tensor(names)[:, None].expand(-1, part.shape[1])
        windows = self.cwnd.values.shape[1]
        window = (torch.arange(part.shape[1]) * windows // self.steps[scenarios[:, :1]]).clamp(max=windows - 1)
        count = links.sum(part).clamp(min=1.0)
        reached = self.cwnd.at(scenarios, window, links.sum(moves[..., 0] * part) / count)
        best = self.cwnd.best(scenarios, window)
        outside = self.cwnd.outside(moves[..., 0])
        if self.pacing is not None:
            reached = reached + self.pacing.at(scenarios, window, links.sum(moves[..., 1] * part) / count)
            best = best + self.pacing.best(scenarios, window)
            outside = outside + self.pacing.outside(moves[..., 1])
        if self.queued is not None:
            rates = torch.as_tensor(self.seen.rates[flows]) * part
            rates = torch.maximum(rates, LEAST_SHARE * links.spread(links.sum(rates))) * part
            change = self._packets(actions[..., 0]) - self._packets(torch.as_tensor(self.seen.actions[flows]))
            reached = reached * _evenness(rates * change.exp(), part, links)
            if self.base is not None:
                base = self._packets(torch.as_tensor(self.base[flows, :, 0]))
                change = base - self._packets(torch.as_tensor(self.seen.actions[flows]))
                reached = reached / _evenness(rates * change.exp(), part, links)
        of_link = links.sum(weight) / count
        regret = ((best - reached) * of_link).sum() / of_link.sum()
        return regret + OUTSIDE * (outside * weight).sum() / weight.sum(), float(regret.detach())

    def _packets(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the packets that actions keep in the queue."""
        assert self.queued is not None
        first = torch.zeros_like(actions, dtype=torch.int64)
        return self.queued.at(first, first, actions)


def _evenness(rates: torch.Tensor, part: torch.Tensor, links: _Links) -> torch.Tensor:
    """Return Jain's index of the flows of each link, shape (links, steps)."""
    total, squares = links.sum(rates), links.sum(rates**2)
    index: torch.Tensor = (total**2 + _LITTLE) / (links.sum(part) * squares + _LITTLE)
    return index


class _Links(NamedTuple):
    """Which link each of K flows is on, and how many steps after the start of the episode it begins."""

    link: torch.Tensor  # (K,)
    first: torch.Tensor  # (K,)
    size: int

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of values over the flows of each link, shape (links, T).

        Args:
            values: shape (K, T), from each flow's own start on; after T steps of the episode they do not count.
        """
        own = torch.arange(values.shape[1]) - self.first[:, None]
        in_episode = values.gather(1, own.clamp(min=0)) * (own >= 0)
        return torch.zeros(self.size, values.shape[1]).index_add(0, self.link, in_episode)

    def spread(self, of_links: torch.Tensor) -> torch.Tensor:
        """Return what the link of each flow has in its steps, shape (K, T), of shape (links, T)."""
        own = torch.arange(of_links.shape[1]) + self.first[:, None]
        return of_links[self.link].gather(1, own.clamp(max=of_links.shape[1] - 1))


def interpolated(values: torch.Tensor, grid: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return what actions, shape (...), reach by values, shape (..., C), of a rising grid, shape (C,)."""
    inside = actions.clamp(float(grid[0]), float(grid[-1]))
    above = torch.bucketize(inside.detach(), grid).clamp(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    share = (inside - low) / (high - low)
    both = values.gather(-1, torch.stack([above - 1, above], dim=-1))
    return both[..., 0] * (1 - share) + both[..., 1] * share


_LITTLE: Final = 1e-6
