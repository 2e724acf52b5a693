"""Which weights a search chooses: all of a new network, or some of a trained policy's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym.agents.config import SearchConfig
from bbrgym.agents.tuned_policy import TunedPolicy
from bbrgym.baselines.policy_file import Array, Network
from bbrgym.envs.episode_spec import EpisodeSpec

Weights = npt.NDArray[np.float64]

OUTPUT_SCALE: Final = 0.3
"""Scale of the last layer: weights of size 1, on standardised inputs, make actions of size 0.3, well within [-1, 1]."""
TUNED_SCALE: Final = 0.1
"""Scale of what is added to the weights of a trained policy, whose size is about that."""


class SearchedWeights(Protocol):
    """What the numbers of a search mean."""

    size: int
    """How many there are."""

    origin: str
    """What decides the network beside the numbers and the configuration: the content hash of a policy, or empty."""

    def start(self, normal: Weights) -> Weights:
        """Return the first mean of the search, of `size` normal random numbers with the configured deviation."""
        ...

    def network(self, weights: Weights, inputs: tuple[Array, Array] | None) -> Network:
        """Return the network.

        Args:
            weights: the numbers, of size 1, shape (size,).
            inputs: mean and scale that standardise observations; None before they are measured.
        """
        ...


def searched_weights(config: SearchConfig, spec: EpisodeSpec) -> SearchedWeights:
    """Return what a search of this configuration chooses.

    Raises:
        FileNotFoundError, ValueError: there is no policy at `agent.tunes`, or it does not fit.
    """
    if config.tunes is None:
        return _AllWeights(config, spec)
    return _TunedWeights(TunedPolicy.read(config.tunes, spec), config.tuned)


class _AllWeights:
    """Those of a network that begins at random."""

    origin = ""

    def __init__(self, config: SearchConfig, spec: EpisodeSpec) -> None:
        sizes = [*spec.observation.space.shape, *config.net_arch, 2]
        self._shapes = [(outputs, inputs) for inputs, outputs in itertools.pairwise(sizes)]
        self._activation = config.activation_fn
        self.size = sum(outputs * inputs + outputs for outputs, inputs in self._shapes)

    def start(self, normal: Weights) -> Weights:
        normal[-2:] = 0.0  # biases of the outputs: the first mean action is around the middle
        return normal

    def network(self, weights: Weights, inputs: tuple[Array, Array] | None) -> Network:
        layers = []
        end = 0
        for outputs, count in self._shapes:
            begin, end = end, end + outputs * count
            weight = weights[begin:end].reshape(outputs, count) / math.sqrt(count)
            begin, end = end, end + outputs
            layers.append((weight, weights[begin:end]))
        layers[-1] = OUTPUT_SCALE * layers[-1][0], OUTPUT_SCALE * layers[-1][1]
        network = Network(
            tuple((weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in layers),
            activation=self._activation,
        )
        return network if inputs is None else network.with_standardised_inputs(*inputs)


class _TunedWeights:
    """Those of a trained policy: what is added to chosen weights, which begin as they are.

    Features that the policy does not observe begin with weights of 0. So the search begins with the policy itself.
    """

    def __init__(self, policy: TunedPolicy, tuned: Sequence[str]) -> None:
        self.origin = policy.content_hash
        if "added" in tuned and not policy.added:
            raise ValueError("agent.tuned=[added] needs a feature in observation.features that the policy lacks")
        tunes_skip = {"skip", "all"} | ({"added"} if policy.network.lstm else set())
        self._first = policy.with_skip() if tunes_skip & {*tuned} else policy.network
        self._parts = _parts_of(self._first, tuned, policy.added)
        if not self._parts:
            raise ValueError(f"agent.tuned: the policy at agent.tunes has none of {', '.join(tuned)}")
        self.size = sum(part.size for part in self._parts)

    def start(self, normal: Weights) -> Weights:
        return np.zeros_like(normal)

    def network(self, weights: Weights, inputs: tuple[Array, Array] | None) -> Network:
        arrays = {name: array.astype(np.float64) for name, array in self._first.to_arrays().items()}
        mean, scale = (np.zeros(self._first.inputs), np.ones(self._first.inputs)) if inputs is None else inputs
        end = 0
        for part in self._parts:
            begin, end = end, end + part.size
            change = part.scale * weights[begin:end].reshape(part.shape)
            if part.is_of_inputs:
                change = change * scale[part.columns] / math.sqrt(change.shape[-1])
            if part.bias is not None:  # what is centred changes nothing on average
                arrays[part.bias] -= change @ mean[part.columns]
            arrays[part.name][..., part.columns] += change
        plain = {name: array.astype(np.float32) for name, array in arrays.items()}
        return Network.from_arrays(plain, self._first.activation, self._first.output)


class _Part(NamedTuple):
    """Numbers of a search that are added to columns of an array."""

    name: str
    shape: tuple[int, ...]
    columns: Any
    scale: float
    bias: str | None = None
    """Where the mean of the inputs is subtracted; None: it is not."""
    is_of_inputs: bool = False
    """Whether the columns are inputs, which are standardised, and of which many change a sum more than few."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def _parts_of(network: Network, tuned: Sequence[str], added: Sequence[int]) -> list[_Part]:
    """Return what is tuned of a network, without repetitions."""
    arrays = network.to_arrays()
    last = len(network.layers) - 1
    # The bias that keeps a change of these weights from shifting what they lead to.
    of_inputs = {"skip.weight": f"layer.{last}.bias"}
    of_inputs |= {"lstm.0.input": "lstm.0.bias"} if network.lstm else {"layer.0.weight": "layer.0.bias"}
    kinds = {
        "last": (f"layer.{last}.weight", f"layer.{last}.bias"),
        "skip": ("skip.weight",),
        "layers": tuple(name for name in arrays if name.startswith("layer.")),
        "gates": tuple(name for name in arrays if name.startswith("lstm.")),
        "biases": tuple(name for name in arrays if name.endswith("bias")),
        "all": tuple(arrays),
    }
    chosen = dict.fromkeys(name for kind in tuned if kind != "added" for name in kinds[kind] if name in arrays)
    parts = []
    for name in chosen:
        bias = of_inputs.get(name)
        scale = TUNED_SCALE if bias is None else OUTPUT_SCALE
        parts.append(_Part(name, arrays[name].shape, slice(None), scale, bias, is_of_inputs=bias is not None))
    # Gates are too many for a search.
    entry, scale = ("skip.weight", OUTPUT_SCALE) if network.lstm else ("layer.0.weight", 1.0)
    if "added" in tuned and entry not in chosen:
        shape = len(arrays[entry]), len(added)
        parts.append(_Part(entry, shape, list(added), scale, is_of_inputs=True))
    return parts
