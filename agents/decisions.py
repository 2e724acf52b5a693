"""The decisions of a rollout, in the form in which a network learns from them. Importing it loads torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bbrgym.agents.torch_network import TorchNetwork
from bbrgym.baselines.policy_file import Array


class Decisions(Protocol):
    """Decisions of flows that took part in a rollout of T steps of M flows, in N parts that can be shuffled."""

    def __len__(self) -> int:
        """Return N."""
        ...

    def of(self, values: Array) -> torch.Tensor:
        """Return what all decisions have of values, shape (T, M, ...), for `pick`."""
        ...

    def pick(self, values: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
        """Return what the K decisions of some parts have of the values of all, shape (K, ...)."""
        ...

    def outputs(self, network: TorchNetwork, parts: torch.Tensor) -> torch.Tensor:
        """Return the outputs of a network in the decisions of some parts, in the order of `pick`."""
        ...


class SingleDecisions(Decisions):
    """Each decision is a part of its own, for networks without memory.

    Args:
        observations: standardised, shape (T, M, length).
        took_part: shape (T, M).
    """

    def __init__(self, observations: Array, took_part: npt.NDArray[np.bool_]) -> None:
        self._took_part = took_part
        self._observations = self.of(observations)

    def __len__(self) -> int:
        return len(self._observations)

    def of(self, values: Array) -> torch.Tensor:
        """See `Decisions`."""
        return torch.as_tensor(values[self._took_part])

    def pick(self, values: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
        """See `Decisions`."""
        return values[parts]

    def outputs(self, network: TorchNetwork, parts: torch.Tensor) -> torch.Tensor:
        """See `Decisions`."""
        return network(self._observations[parts])  # type: ignore[no-any-return]  # torch has no type there


class SegmentDecisions(Decisions):
    """Each segment is a part, for networks with memory.

    A flow that has not begun sees the neutral observation, which its memory counts as the engine's does. What follows
    its last step is left out.

    Args:
        observations: standardised, shape (T, M, length).
        took_part: shape (T, M).
        segments: of the rollout.
        states: what the network remembers of each flow before the rollout, shape (M, size).
    """

    def __init__(
        self, observations: Array, took_part: npt.NDArray[np.bool_], segments: Segments, states: Array
    ) -> None:
        self._segments = segments.up_to_last(took_part)
        self._part = self.of(took_part) & torch.as_tensor(self._segments.is_inside)
        self._observations = self.of(observations)
        self._lengths = torch.as_tensor(self._segments.lengths)
        self._states = torch.as_tensor(self._segments.first_states(states))

    def __len__(self) -> int:
        return len(self._lengths)

    def of(self, values: npt.NDArray[Any]) -> torch.Tensor:
        """See `Decisions`."""
        return torch.as_tensor(self._segments.gather(values))

    def pick(self, values: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
        """See `Decisions`."""
        return values[parts][self._part[parts]]

    def outputs(self, network: TorchNetwork, parts: torch.Tensor) -> torch.Tensor:
        """See `Decisions`."""
        outputs = network(self._observations[parts], self._states[parts], self._lengths[parts])
        return outputs[self._part[parts]]  # type: ignore[no-any-return]  # torch has no type there


@dataclass(frozen=True)
class Segments:
    """The parts of episodes in a rollout of T steps of M flows: S of them, each of one flow, of at most L steps.

    Attributes:
        flows: whose they are, shape (S,), rising.
        begins: their first steps, shape (S,).
        lengths: in steps, at least 1, shape (S,).
    """

    flows: npt.NDArray[np.intp]
    begins: npt.NDArray[np.intp]
    lengths: npt.NDArray[np.intp]

    @classmethod
    def of(cls, dones: npt.NDArray[np.bool_]) -> Segments:
        """Return those of a rollout whose episodes end so, shape (T, M)."""
        steps, count = dones.shape
        is_first = np.concatenate([np.ones((1, count), np.bool_), dones[:-1]])
        flows, begins = np.nonzero(is_first.T)
        is_last = np.append(flows[1:] != flows[:-1], True)
        return cls(flows, begins, np.where(is_last, steps, np.roll(begins, -1)) - begins)

    @property
    def lasts(self) -> npt.NDArray[np.intp]:
        """Their last steps, shape (S,)."""
        return self.begins + self.lengths - 1

    @property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """Which of L steps each one has, shape (S, L)."""
        return np.arange(self.lengths.max()) < self.lengths[:, np.newaxis]

    def gather(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of each one, shape (S, L, ...), from shape (T, M, ...). What follows its steps is any."""
        steps = self.begins[:, np.newaxis] + np.arange(self.lengths.max())
        return values[np.minimum(steps, len(values) - 1), self.flows[:, np.newaxis]]

    def scatter(self, values: Array, into: Array) -> None:
        """Write the values of each one, shape (S, L), into those of the rollout, shape (T, M)."""
        segment, step = np.nonzero(self.is_inside)
        into[self.begins[segment] + step, self.flows[segment]] = values[segment, step]

    def first_states(self, states: Array) -> Array:
        """Return what is remembered before each one, shape (S, size): 0 where an episode begins.

        Args:
            states: before the rollout, shape (M, size).
        """
        return np.where(self.begins[:, np.newaxis] == 0, states[self.flows], np.float32(0.0))

    def up_to_last(self, took_part: npt.NDArray[np.bool_]) -> Segments:
        """Return them up to the last step in which the flow took part, shape (T, M); without those that have none."""
        part = self.gather(took_part) & self.is_inside
        kept = part.any(axis=1)
        lengths = part.shape[1] - part[:, ::-1].argmax(axis=1)
        return Segments(self.flows[kept], self.begins[kept], lengths[kept])
