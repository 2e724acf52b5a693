"""The networks of policies and critics in torch, where their weights can learn. Importing it loads torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bbrgym.agents.actor import ACTIVATION_TYPES
from bbrgym.baselines.policy_file import Array, Network

OUTPUT_SCALE: Final = 0.1
"""Scale of a policy's last layer at the start, so that its first actions are close to its biases."""


class TorchNetwork(nn.Module):
    """LSTM layers (none: no memory), fully connected layers with an activation between them, and perhaps a skip.

    Args:
        inputs: length of an observation.
        outputs: how many values it returns.
        lstm: units of each LSTM layer.
        widths: sizes of the hidden fully connected layers.
        activation: `tanh` or `relu`.
        has_skip: whether the observation itself adds to the outputs, linearly.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        lstm: Sequence[int] = (),
        widths: Sequence[int] = (),
        activation: str = "tanh",
        has_skip: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.lstm = nn.LSTM(inputs, lstm[0], batch_first=True) if lstm else None
        upper = [nn.LSTM(below, units, batch_first=True) for below, units in itertools.pairwise(lstm)]
        self.upper = nn.ModuleList(upper) if upper else None
        self.out = _fully_connected([*([inputs, *lstm][-1:]), *widths, outputs], activation)
        self.skip = nn.Linear(inputs, outputs, bias=False) if has_skip else None

    @classmethod
    def of(cls, network: Network) -> TorchNetwork:
        """Return the network of a policy, without what bounds its outputs."""
        made = cls(
            network.inputs,
            network.outputs,
            lstm=[of_state.shape[1] for _, of_state, _ in network.lstm],
            widths=[len(bias) for _, bias in network.layers[:-1]],
            activation=network.activation,
            has_skip=network.skip is not None,
        )
        made.load(network)
        return made

    def forward(
        self, observations: torch.Tensor, states: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the outputs, before anything bounds them.

        Args:
            observations: standardised, shape (..., inputs); with an LSTM (sequences, steps, inputs).
            states: before the first steps, as `run` takes them.
            lengths: steps of each sequence, at least 1; None: all. What is returned after them means nothing.

        Returns:
            Shape (..., outputs).
        """
        outputs, _ = self.run(observations, states, lengths)
        return outputs

    def run(
        self, observations: torch.Tensor, states: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs, as `forward` does, and the states after the last step of each sequence.

        Args:
            observations: as for `forward`.
            states: hidden and cell state of each LSTM layer in turn, shape (sequences, state_size), as the engines keep
                them. None: zeros, as at the beginning of an episode.
            lengths: as for `forward`.
        """
        if self.lstm is None:
            return self._add_skip(self.out(observations), observations), observations.new_zeros(len(observations), 0)
        packed = None
        hidden: torch.Tensor | PackedSequence = observations
        if lengths is not None:
            packed = hidden = pack_padded_sequence(observations, lengths, batch_first=True, enforce_sorted=False)
        after, end = [], 0
        for layer in self._lstm:
            if states is None:
                hidden, last = layer(hidden)
            else:
                begin, middle, end = end, end + layer.hidden_size, end + 2 * layer.hidden_size
                first = states[None, :, begin:middle].contiguous(), states[None, :, middle:end].contiguous()
                hidden, last = layer(hidden, first)
            after += [part[0] for part in last]
        if isinstance(hidden, PackedSequence):
            assert packed is not None
            outputs = self._add_skip(self.out(hidden.data), packed.data)
            padded, _ = pad_packed_sequence(
                hidden._replace(data=outputs), batch_first=True, total_length=observations.shape[1]
            )
        else:
            padded = self._add_skip(self.out(hidden), observations)
        return padded, torch.cat(after, dim=1)

    @property
    def units(self) -> tuple[int, ...]:
        """Of each LSTM layer."""
        return tuple(layer.hidden_size for layer in self._lstm)

    @property
    def state_size(self) -> int:
        """Length of the state of a sequence; 0 without an LSTM."""
        return 2 * sum(self.units)

    def begin_with(self, outputs: Sequence[float]) -> None:
        """Let it return these outputs where it knows nothing."""
        with torch.no_grad():
            self._layers[-1].bias.copy_(torch.as_tensor(outputs))

    def network(self, output: str = "clip") -> Network:
        """Return it as a policy's network.

        Args:
            output: what bounds its outputs, `clip` or `tanh`.

        Raises:
            ValueError: its weights are not finite.
        """
        lstm = []
        for layer in self._lstm:
            of_input, of_state, bias_1, bias_2 = (_array(weights) for weights in layer.all_weights[0])
            lstm.append((of_input, of_state, bias_1 + bias_2))
        layers = [(_array(layer.weight), _array(layer.bias)) for layer in self._layers]
        skip = None if self.skip is None else _array(self.skip.weight)
        return Network(tuple(layers), tuple(lstm), self.activation, output, skip)

    def load(self, network: Network) -> None:
        """Take the weights of a network of the same shape."""
        with torch.no_grad():
            for lstm, (of_input, of_state, bias) in zip(self._lstm, network.lstm, strict=True):
                values = of_input, of_state, bias, np.zeros_like(bias)
                for weights, value in zip(lstm.all_weights[0], values, strict=True):
                    weights.copy_(torch.as_tensor(value))
            for layer, (weight, bias) in zip(self._layers, network.layers, strict=True):
                layer.weight.copy_(torch.as_tensor(weight))
                layer.bias.copy_(torch.as_tensor(bias))
            if self.skip is not None:
                assert network.skip is not None
                self.skip.weight.copy_(torch.as_tensor(network.skip))

    def shrink_outputs(self) -> None:
        """Make the first outputs almost those of `begin_with`: a last layer of small weights, and a skip of none."""
        with torch.no_grad():
            self._layers[-1].weight.mul_(OUTPUT_SCALE)
            if self.skip is not None:
                self.skip.weight.zero_()

    @property
    def _lstm(self) -> list[nn.LSTM]:
        layers = [] if self.lstm is None else [self.lstm, *(self.upper or ())]
        return [layer for layer in layers if isinstance(layer, nn.LSTM)]

    @property
    def _layers(self) -> list[nn.Linear]:
        return [layer for layer in self.out.modules() if isinstance(layer, nn.Linear)]

    def _add_skip(self, outputs: torch.Tensor, observations: torch.Tensor) -> torch.Tensor:
        return outputs if self.skip is None else outputs + self.skip(observations)


def policy_with_memory(inputs: int, units: int, *, has_skip: bool) -> TorchNetwork:
    """Return the network of a policy with memory at its random start: an LSTM, one layer, and perhaps a skip.

    Args:
        inputs: length of an observation.
        units: of the LSTM.
        has_skip: whether the observation itself adds to the actions.
    """
    network = TorchNetwork(inputs, 2, lstm=(units,), has_skip=has_skip)
    network.shrink_outputs()
    with torch.no_grad():
        network._layers[-1].weight[1] = 0.0  # pacing_gain begins as a constant
    return network


def _fully_connected(sizes: Sequence[int], activation: str) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), ACTIVATION_TYPES[activation]()]
    return layers[0] if len(layers) == 2 else nn.Sequential(*layers[:-1])


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().numpy().copy()
    return array
