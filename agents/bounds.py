"""Bounds on what a policy's network can answer, over boxes of its inputs.

Per box, the network is enclosed by two linear functions of its inputs (CROWN; Zhang et al. 2018, arXiv:1811.00866), and
the gates of an LSTM by intervals. The network computes in single precision: everything is widened by the most that its
rounding can change, which is thousands of times more than the rounding of this code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym.baselines.policy_file import Network

Floats = npt.NDArray[np.float64]

_ROUNDING: Final = 1.01 * 2.0**-24
"""Of one operation in single precision, as a part of its result; 1 % more for the rounding in double precision."""
_LARGEST: Final = 3e38
"""Sums that are smaller do not overflow in single precision."""
_UNDERFLOW: Final = 2.0**-149
"""Of one product that is too small for single precision."""
_TANH_ERROR: Final = 1e-7
"""Of tanh in single precision: 1e-8 of the formula (baselines/cc/elementary.h), 6e-8 of rounding to single."""
_SIGMOID_ERROR: Final = 3e-7
"""Of 0.5 (tanh(x / 2) + 1), with the rounding of its three other operations."""
_CELL_ROUNDING: Final = 4 * _ROUNDING
"""Of two products and their sum, as a part of their sizes."""

_SLOPES: Final = np.array([0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.5, 5.0])
"""Slopes of lines around tanh that are tried, as multiples of the chord's."""

_STEPS: Final = 1e6
"""Of a flow: a cell that forgets nothing, and adds at most 1 in each step, has at most so much."""
_MEMORY_ROUNDS: Final = 50
"""How often the memory that can be reached is narrowed; each round is valid by itself."""


class Intervals(NamedTuple):
    """Lower and upper ends, both of shape (boxes, values)."""

    low: Floats
    high: Floats

    @property
    def size(self) -> Floats:
        """The largest absolute values."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


@dataclass(frozen=True)
class Bound:
    """Upper bounds of a linear function of a network's inputs and outputs, one per box.

    Attributes:
        most: shape (boxes,).
        slopes: of the linear function of the inputs that bounds it, shape (boxes, inputs).
        blame: how much each input's width makes the bound loose; same shape.
    """

    most: Floats
    slopes: Floats
    blame: Floats


class NetworkBounds:
    """Bounds of a network's last values, before they are bounded to [-1, 1].

    The inputs of a box are those of the network, and then its memory: hidden and cell state of each LSTM layer in turn.
    Methods raise ValueError if sums can overflow in it.
    """

    def __init__(self, network: Network) -> None:
        self._inputs = network.inputs
        self._is_tanh = network.activation == "tanh"
        self._lstm = [[array.astype(np.float64) for array in layer] for layer in network.lstm]
        self._layers = [(weight.astype(np.float64), bias.astype(np.float64)) for weight, bias in network.layers]
        skip = np.zeros((network.outputs, 0)) if network.skip is None else network.skip.astype(np.float64)
        self._skip = skip
        self.values = max(weight.size for weight, _ in self._layers)
        """How many numbers a box needs, about."""
        self.memory = sum(2 * of_state.shape[1] for _, of_state, _ in self._lstm)

    def reachable_memory(self, low: Floats, high: Floats) -> Intervals:
        """Return what the memory can be after any steps, up to a million, whose inputs lie in a box.

        A hidden state lies in [-1, 1] whatever happened before. A cell that keeps at most f < 1 of itself and adds at
        most g lies within g / (1 - f). From there the step is applied until nothing gets narrower. The memory of a flow
        that begins, 0, stays part of it.

        Args:
            low: lowest inputs, shape (inputs,).
            high: highest inputs.

        Returns:
            Shape (1, values of the memory).
        """
        if not self._lstm:
            return Intervals(np.zeros((1, 0)), np.zeros((1, 0)))
        most = [np.full(of_state.shape[1], value) for _, of_state, _ in self._lstm for value in (1.0, _STEPS)]
        edge = np.concatenate(most)[np.newaxis]
        memory = Intervals(-edge, edge)
        for round_ in range(_MEMORY_ROUNDS):
            boxes = Intervals(*(np.hstack([x[np.newaxis], m]) for x, m in zip((low, high), memory, strict=True)))
            after = self._step(boxes, is_cell_bounded=round_ == 0)
            narrower = Intervals(
                np.maximum(memory.low, np.minimum(after.low, 0.0)), np.minimum(memory.high, np.maximum(after.high, 0.0))
            )
            if np.array_equal(narrower, memory):
                break
            memory = narrower
        return memory

    def most(self, low: Floats, high: Floats, of_outputs: Floats, of_inputs: Floats) -> Bound:
        """Return upper bounds of `of_outputs · outputs + of_inputs · inputs`, one per box.

        Args:
            low: lowest inputs of the boxes, shape (boxes, inputs).
            high: highest inputs.
            of_outputs: shape (outputs,).
            of_inputs: shape (inputs,).
        """
        boxes = Intervals(low, high)
        entry = self._entry(boxes)
        values = self._values(boxes, entry)
        rows = np.broadcast_to(of_outputs, (len(low), 1, len(of_outputs)))
        of_entry, constant, losses = self._back(rows, boxes, entry, values)
        slopes = np.broadcast_to(of_inputs, low.shape).copy()
        slopes[:, : self._skip.shape[1]] += of_outputs @ self._skip
        most = constant[:, 0]
        if self._lstm:
            most = most + _highest(of_entry[:, 0], entry)
        else:
            slopes[:, : self._inputs] += of_entry[:, 0]
        most = most + _highest(slopes, boxes)
        plain = _highest(of_outputs, values[-1]) + _highest(of_inputs, boxes)  # interval arithmetic alone
        return Bound(np.minimum(most, plain), slopes, self._blame(losses, high - low))

    def _entry(self, boxes: Intervals) -> Intervals:
        """Return what enters the fully connected layers."""
        if not self._lstm:
            return Intervals(boxes.low[:, : self._inputs], boxes.high[:, : self._inputs])
        hidden = self._lstm[-1][1].shape[1]
        after = self._step(boxes)
        return Intervals(after.low[:, -2 * hidden : -hidden], after.high[:, -2 * hidden : -hidden])

    def _step(self, boxes: Intervals, *, is_cell_bounded: bool = False) -> Intervals:
        """Return the memory after a step.

        Args:
            boxes: the inputs.
            is_cell_bounded: return what cells stay within that were so before, instead.
        """
        x = Intervals(boxes.low[:, : self._inputs], boxes.high[:, : self._inputs])
        begin = self._inputs
        found = []
        for of_input, of_state, bias in self._lstm:
            width = of_state.shape[1]
            hidden, cell = (
                Intervals(boxes.low[:, at : at + width], boxes.high[:, at : at + width])
                for at in (begin, begin + width)
            )
            begin += 2 * width
            z = _product(np.hstack([of_input, of_state]), _joined(x, hidden), bias)
            enter, forget, new, leave = (
                Intervals(z.low[:, at : at + width], z.high[:, at : at + width]) for at in range(0, 4 * width, width)
            )
            enter, forget, leave = _sigmoid(enter), _sigmoid(forget), _sigmoid(leave)
            added = _times(enter, _tanh(new))
            if is_cell_bounded:
                left = 1.0 - (1.0 + _CELL_ROUNDING) * forget.high - _CELL_ROUNDING
                edge = np.minimum((1.0 + _CELL_ROUNDING) * added.size / np.maximum(left, 1e-300), _STEPS)
                after = Intervals(-edge, edge)
            else:
                kept = _times(forget, cell)
                error = _CELL_ROUNDING * (kept.size + added.size) + _UNDERFLOW
                after = Intervals(kept.low + added.low - error, kept.high + added.high + error)
            out = _times(leave, _tanh(after))
            error = _ROUNDING * out.size + _UNDERFLOW
            x = Intervals(np.maximum(out.low - error, -1.0), np.minimum(out.high + error, 1.0))
            found += [x, after]
        return _joined(*found)

    def _values(self, boxes: Intervals, entry: Intervals) -> list[Intervals]:
        """Return intervals of each layer's values, before its activation."""
        values: list[Intervals] = []
        x = entry
        for number, (weight, bias) in enumerate(self._layers):
            is_last = number == len(self._layers) - 1
            if is_last and self._skip.size:
                seen = Intervals(boxes.low[:, : self._inputs], boxes.high[:, : self._inputs])
                z = _product(np.hstack([weight, self._skip]), _joined(x, seen), bias)
            else:
                z = _product(weight, x, bias)
            if number and not is_last:
                z = self._tightened(z, boxes, entry, values)
            values.append(z)
            x = self._activated(z)
        return values

    def _tightened(self, z: Intervals, boxes: Intervals, entry: Intervals, values: list[Intervals]) -> Intervals:
        """Return a layer's intervals, each end the better one of theirs and the linear bound's."""
        ends = []
        unit = np.eye(z.low.shape[1])
        for sign in (-1.0, 1.0):
            rows = np.broadcast_to(sign * unit, (len(z.low), *unit.shape))
            slopes, constant, _ = self._back(rows, boxes, entry, [*values, z])
            low, high = entry.low[:, np.newaxis], entry.high[:, np.newaxis]
            ends.append(constant + np.maximum(slopes * low, slopes * high).sum(axis=2))
        return Intervals(np.maximum(z.low, -ends[0]), np.minimum(z.high, ends[1]))

    def _back(
        self, rows: Floats, boxes: Intervals, entry: Intervals, values: list[Intervals]
    ) -> tuple[Floats, Floats, Floats]:
        """Return upper bounds of linear functions of a layer's values that are linear in what enters the first layer.

        The skip is left out, but not its rounding.

        Args:
            rows: the functions, shape (boxes, functions, values of the layer).
            boxes: the inputs.
            entry: what enters the first layer.
            values: intervals of the values of each layer up to this one, whose own are not used.

        Returns:
            Slopes, shape (boxes, functions, entering values), constants, shape (boxes, functions), and what each value
            of the first layer loses by its lines, shape (boxes, values), or (boxes, 0) if it has none.
        """
        constant = np.zeros(rows.shape[:2])
        loss = np.zeros((len(rows), 0))
        for number in range(len(values) - 1, -1, -1):
            weight, bias = self._layers[number]
            x = self._activated(values[number - 1]) if number else entry
            error = _error(weight, x, bias)
            if number == len(self._layers) - 1 and self._skip.size:
                seen = Intervals(boxes.low[:, : self._inputs], boxes.high[:, : self._inputs])
                error = _error(np.hstack([weight, self._skip]), _joined(x, seen), bias)
            constant = constant + rows @ bias + _each(np.abs(rows), error)
            rows = rows @ weight
            if number:
                before = values[number - 1]
                (low_slope, low_shift), (high_slope, high_shift) = self._lines(before)
                up, down = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
                constant = constant + _each(up, high_shift) + _each(down, low_shift)
                middle = (before.low + before.high) / 2
                gap = (high_slope - low_slope) * middle + high_shift - low_shift
                loss = np.abs(rows).sum(axis=1) * gap
                rows = up * high_slope[:, np.newaxis] + down * low_slope[:, np.newaxis]
        return rows, constant, loss

    def _blame(self, loss: Floats, widths: Floats) -> Floats:
        """Return by how much each input's width moves the first layer's values, weighted by what these lose."""
        weight = np.hstack(self._lstm[0][:2]) if self._lstm else self._layers[0][0]
        moves = np.abs(weight) * widths[:, np.newaxis, : weight.shape[1]]
        blame = np.zeros_like(widths)
        if self._lstm or not loss.size:
            blame[:, : weight.shape[1]] = moves.sum(axis=1)
            return blame
        share = moves / np.maximum(moves.sum(axis=2, keepdims=True), 1e-300)
        blame[:, : weight.shape[1]] = np.einsum("bj,bji->bi", loss, share)
        return blame

    def _activated(self, z: Intervals) -> Intervals:
        return _tanh(z) if self._is_tanh else Intervals(np.maximum(z.low, 0.0), np.maximum(z.high, 0.0))

    def _lines(self, z: Intervals) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return slope and shift of a line below the activation in each interval, and of one above it."""
        return _tanh_lines(z) if self._is_tanh else _relu_lines(z)


def _product(weight: Floats, x: Intervals, bias: Floats) -> Intervals:
    """Return the intervals of `weight @ x + bias` in single precision."""
    up, down = np.maximum(weight, 0.0).T, np.minimum(weight, 0.0).T
    error = _error(weight, x, bias)
    return Intervals(x.low @ up + x.high @ down + bias - error, x.high @ up + x.low @ down + bias + error)


def _error(weight: Floats, x: Intervals, bias: Floats) -> Floats:
    """Return the most that single precision changes `weight @ x + bias`: n products and n sums (Higham 2002, ch. 3).

    Raises:
        ValueError: the sum can overflow.
    """
    operations = weight.shape[1] + 2
    size = x.size @ np.abs(weight).T + np.abs(bias)
    if size.max() > _LARGEST:
        raise ValueError("the sums of its network can overflow single precision, so that it decides nothing")
    error: Floats = operations * (_ROUNDING * size + _UNDERFLOW)
    return error


def _joined(*parts: Intervals) -> Intervals:
    return Intervals(np.hstack([part.low for part in parts]), np.hstack([part.high for part in parts]))


def _times(one: Intervals, other: Intervals) -> Intervals:
    ends = [a * b for a in one for b in other]
    return Intervals(np.minimum.reduce(ends), np.maximum.reduce(ends))


def _tanh(x: Intervals) -> Intervals:
    return Intervals(np.maximum(np.tanh(x.low) - _TANH_ERROR, -1.0), np.minimum(np.tanh(x.high) + _TANH_ERROR, 1.0))


def _sigmoid(x: Intervals) -> Intervals:
    low, high = (0.5 * (np.tanh(0.5 * end) + 1.0) for end in x)
    return Intervals(np.maximum(low - _SIGMOID_ERROR, 0.0), np.minimum(high + _SIGMOID_ERROR, 1.0))


def _tanh_lines(z: Intervals) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return, of several lines that touch tanh from below and from above, those that are closest in the middle."""
    low, high = z.low[..., np.newaxis], z.high[..., np.newaxis]
    width = np.maximum(high - low, 1e-12)
    chord = np.maximum(np.tanh(high) - np.tanh(low), 0.0) / width
    slopes = np.minimum(chord * _SLOPES, 1.0)
    # tanh(z) - slope z is extreme at the ends, or where tanh' = slope.
    turn = np.arctanh(np.minimum(np.sqrt(1.0 - slopes), 1.0 - 1e-15))
    places = [low, high, np.clip(turn, low, high), np.clip(-turn, low, high)]
    shifts = [np.tanh(place) - slopes * place for place in places]
    middle = (low + high) / 2
    lines = []
    for shift, sign in (
        (np.minimum.reduce(shifts) - _TANH_ERROR, -1.0),
        (np.maximum.reduce(shifts) + _TANH_ERROR, 1.0),
    ):
        best = np.argmin(sign * (slopes * middle + shift), axis=-1, keepdims=True)
        lines.append(tuple(np.take_along_axis(part, best, axis=-1)[..., 0] for part in (slopes, shift)))
    return lines[0], lines[1]  # type: ignore[return-value]


def _relu_lines(z: Intervals) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return the line below that is closest, 0 or z, and the chord."""
    below = np.where(z.high > -z.low, 1.0, 0.0)
    below = np.where(z.low >= 0, 1.0, np.where(z.high <= 0, 0.0, below))
    slope = np.where(z.low >= 0, 1.0, np.maximum(z.high, 0.0) / np.maximum(z.high - z.low, 1e-300))
    slope = np.where(z.high <= 0, 0.0, np.minimum(slope, 1.0))
    shift = np.maximum(np.maximum(z.low, 0.0) - slope * z.low, np.maximum(z.high, 0.0) - slope * z.high)
    return (below, np.zeros_like(below)), (slope, shift)


def _each(rows: Floats, values: Floats) -> Floats:
    """Return the products of functions, shape (boxes, functions, values), with values, shape (boxes, values)."""
    return (rows @ values[..., np.newaxis])[..., 0]


def _highest(slopes: Floats, boxes: Intervals) -> Floats:
    highest: Floats = np.maximum(slopes * boxes.low, slopes * boxes.high).sum(axis=1)
    return highest
