"""
The registry of congestion controllers, and the features that agents see (C++).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

def controllers() -> dict[str, str]:
    """Return {name: one line about it} of every registered controller."""

def defaults(name: str) -> dict[str, float]:
    """
    Return the parameters of a controller with their defaults. Raises ValueError for an unknown name.
    """

def check(name: str, parameters: Mapping[str, float]) -> None:
    """
    Raise ValueError, with the reason, unless the controller takes these parameters.
    """

def policy_features() -> list[tuple[str, list[str], float, float, float, str, str]]:
    """
    Return name, columns, lowest, highest and neutral value, formula in C99, and meaning of every feature that an agent can see.
    """

def policy_start() -> dict[str, float]:
    """
    Return the columns of a policy's first decision, when the connection is set up; NaN where it knows nothing yet.
    """

def log(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def log2(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def log10(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def exp(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def exp2(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def cbrt(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def sinh(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def asinh(x: float) -> float:
    """As the function of `math`, but with the same bits on every machine."""

def pow(x: float, y: float) -> float:
    """Return x^y for x >= 0 and y > 0, with the same bits on every machine."""

PACKETS_STEEPNESS: float = 8.0

LEAST_BDP: float = 0.001

class GainMap:
    """What actions mean: see `bbrgym.envs.action.Action`."""

    def __init__(self, cwnd_gain: tuple[float, float], pacing_gain: tuple[float, float], cwnd_scale: int) -> None:
        """
        The bounds of both gains (low, high), and the index of cwnd_scale in `CWND_SCALES`.
        """

    def gains(
        self,
        actions: Annotated[NDArray[numpy.float64], dict(shape=(None, 2), device="cpu", writable=False)],
        bdp_packets: Annotated[NDArray[numpy.float64], dict(shape=(None,), device="cpu", writable=False)] | None,
    ) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None))]:
        """
        From actions, shape (flows, 2), and BDPs, shape (flows,), to gains, shape (2, flows). Only "packets" needs the BDPs, NaN without an estimate. Raises ValueError for NaN in actions.
        """

    def actions(
        self,
        gains: Annotated[NDArray[numpy.float64], dict(shape=(2, None), device="cpu", writable=False)],
        bdp_packets: Annotated[NDArray[numpy.float64], dict(shape=(None,), device="cpu", writable=False)],
    ) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """The inverse of `gains`, as float32."""

class PolicyTable:
    """Computes chosen features of flows from a table of their rows."""

    def __init__(self, features: Sequence[str], columns: Sequence[str]) -> None:
        """
        The features, and the columns of the table. Where the column `took_part` is 0, features are neutral. Raises ValueError.
        """

    def evaluate(
        self, table: Annotated[NDArray[numpy.float64], dict(shape=(None, None), device="cpu", writable=False)]
    ) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """From shape (columns, flows) to (flows, features). Raises ValueError."""

class PolicyNetwork:
    """A trained policy, as the controller `policy` runs it."""

    def __init__(self, policy: bytes) -> None:
        """The bytes of a policy. Raises ValueError for anything else."""

    @property
    def inputs(self) -> int:
        """Length of an observation."""

    @property
    def state_size(self) -> int:
        """Length of the state of a flow; 0 without an LSTM."""

    def forward(
        self,
        observations: Annotated[
            NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        state: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        From shape (N, inputs) to actions (N, 2). Updates `state`, shape (N, state_size): the hidden and cell state of each LSTM layer in turn, zeros at the beginning of an episode. Raises ValueError for other shapes.
        """
