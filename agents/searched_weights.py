"""Which weights of a policy a search chooses: all of a new network, or those of features that a policy is to learn."""

from __future__ import annotations

import itertools
import math
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym.agents.config import SearchConfig
from bbrgym.baselines.policy_file import Array, Network, StoredPolicy, read_policy
from bbrgym.envs.episode_spec import EpisodeSpec

Weights = npt.NDArray[np.float64]

OUTPUT_SCALE: Final = 0.3
"""Scale of the last layer: weights of size 1, on standardised inputs, make actions of size 0.3, well within [-1, 1]."""


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
        FileNotFoundError, ValueError: there is no policy at `agent.adds_to`, or it does not fit.
    """
    if config.adds_to is None:
        return _AllWeights(config, spec)
    return _AddedFeatures(read_policy(config.adds_to), spec)


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


class _AddedFeatures:
    """Those that lead from features which a policy does not observe to its first layer; all others stay.

    The features are scaled but not centred: where they are 0, the policy acts as before.
    """

    def __init__(self, policy: StoredPolicy, spec: EpisodeSpec) -> None:
        observed = policy.spec["observation"]["features"]
        names = spec.observation.features
        plain = spec.to_config()
        if lacking := [name for name in observed if name not in names]:
            raise ValueError(
                f"agent.adds_to: the policy observes {', '.join(lacking)}, which observation.features lacks"
            )
        if len(names) == len(observed):
            raise ValueError("agent.adds_to needs a feature in observation.features that the policy does not observe")
        if policy.network.lstm or spec.observation.history > 1 or policy.spec["observation"]["history"] > 1:
            raise ValueError("agent.adds_to needs a policy without memory, and observation.history=1")
        if policy.spec["action"] != plain["action"]:
            raise ValueError(f"agent.adds_to: action must be the policy's, {policy.spec['action']!r}")
        self.origin = policy.content_hash
        self._policy = policy.network
        self._kept = [names.index(name) for name in observed]
        self._added = [index for index, name in enumerate(names) if name not in observed]
        self._width = len(policy.network.layers[0][1])
        self.size = self._width * len(self._added)

    def start(self, normal: Weights) -> Weights:
        return normal

    def network(self, weights: Weights, inputs: tuple[Array, Array] | None) -> Network:
        (first, bias), *layers = self._policy.layers
        scale = 1.0 if inputs is None else inputs[1][self._added]
        weight = np.empty((self._width, len(self._kept) + len(self._added)), np.float32)
        weight[:, self._kept] = first
        weight[:, self._added] = weights.reshape(self._width, -1) * scale / math.sqrt(len(self._added))
        return Network(((weight, bias), *layers), (), self._policy.activation, self._policy.output)
