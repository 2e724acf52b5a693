"""A trained agent as plain numbers: JSON, arrays, and a forward pass that needs neither torch nor pickle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

import bbrgym
from bbrgym.envs.action import CWND_SCALES
from bbrgym.envs.episode import EpisodeSpec, policy_of
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Policy

if TYPE_CHECKING:
    from bbrgym.agents.scripted import BacklogRule

FORMAT: Final = 1
ACTIVATIONS: Final = ("tanh", "relu")
OUTPUTS: Final = ("clip", "tanh")
FOLDERS: Final = ("best", "final")
"""Where a training run keeps its agents, the one that `load_agent` prefers first."""

PREFIX: Final = "scripted:"
"""Begins the name of a scripted agent where the path of a trained one could stand."""

REFERENCE: Final = Path(__file__).with_name("reference")
"""The folder of the agent that flows of algorithm `policy` run if they name no other."""

Array = npt.NDArray[np.float32]


def load_agent(path: Path | str) -> Agent:
    """Load a trained agent. Nothing in its files is executed.

    Args:
        path: a training run (its `best` agent, or `final` if there was no evaluation), or an agent's own folder; or
            `scripted:<name>` (`bbrgym.agents.scripted.RULES`).

    Raises:
        FileNotFoundError: there is no agent.
        ValueError: its files are not an agent of this version, or do not belong together.
    """
    if str(path).startswith(PREFIX):
        from bbrgym.agents.scripted import scripted_agent

        return scripted_agent(str(path).removeprefix(PREFIX))
    folder = _folder_of(path)
    try:
        description = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
        if description["format"] != FORMAT:
            raise ValueError(f"its format is {description['format']!r}, and this version knows {FORMAT}")
        with np.load(folder / "policy.npz", allow_pickle=False) as arrays:
            network = Network.from_arrays(
                {name: arrays[name] for name in arrays.files}, description["activation"], description["output"]
            )
        agent = Agent(EpisodeSpec.from_config(description["spec"]), network, description["training"])
        if agent.content_hash != description["content_hash"]:
            raise ValueError("agent.json and policy.npz do not belong together")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"'{folder}' holds no agent that can be loaded: {reason}") from error
    return agent


def policy_bytes(path: Path | str | None) -> bytes:
    """An agent as the controller `policy` runs it: `load_agent(path).to_bytes()`, read once while its files stay.

    Args:
        path: as for `load_agent`; None is the reference policy.

    Raises:
        FileNotFoundError: there is no agent.
        ValueError: its files are not an agent of this version, or do not belong together.
    """
    if str(path).startswith(PREFIX):
        return load_agent(str(path)).to_bytes()  # which refuses it
    folder = _folder_of(REFERENCE if path is None else path)
    states = [os.stat(file) for file in (folder / "agent.json", folder / "policy.npz") if file.is_file()]
    return _policy_bytes(folder.absolute(), tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in states))


@lru_cache(maxsize=64)
def _policy_bytes(folder: Path, states: tuple[tuple[int, int, int], ...]) -> bytes:
    return load_agent(folder).to_bytes()


def _folder_of(path: Path | str) -> Path:
    given = Path(path).expanduser()
    if given.name == "agent.json":
        given = given.parent
    folder = next((f for f in (given, *(given / name for name in FOLDERS)) if (f / "agent.json").is_file()), None)
    if folder is None:
        what = "it has no agent.json" if given.is_dir() else "there is no such folder"
        raise FileNotFoundError(f"no trained agent in '{given}': {what}; train one with `bbrgym train`")
    return folder


@dataclass
class Agent:
    """A trained policy, for any number of flows that it drives side by side.

    Args:
        spec: of the environment in which it was trained; its scenario, reward and engine are where it comes from, its
            observation, action and step are what it works with.
        network: the weights, or a rule in their place.
        training: where it comes from: algorithm, steps, seed, version, and its reward in the last evaluation.

    Raises:
        ValueError: the network does not fit the observation or the action.
    """

    spec: EpisodeSpec
    network: Network | BacklogRule
    training: Mapping[str, Any] = field(default_factory=dict)
    _state: list[tuple[Array, Array]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        length = int(np.prod(self.spec.observation.space.shape))
        if (self.network.inputs, self.network.outputs) != (length, 2):
            raise ValueError(
                f"the network takes {self.network.inputs} values and gives {self.network.outputs}, but observations "
                f"have {length} and actions 2"
            )

    def predict(self, observations: npt.ArrayLike) -> Array:
        """The most likely actions: what Stable-Baselines3 predicts with `deterministic=True`.

        A recurrent agent remembers what it saw since `reset`, for each row of the observations by itself.

        Args:
            observations: shape (N, length of an observation).

        Returns:
            Actions in [-1, 1], shape (N, 2), float32.

        Raises:
            ValueError: another shape, or another N than before without a `reset` between.
        """
        seen = np.asarray(observations, dtype=np.float32)
        if seen.ndim != 2 or seen.shape[1] != self.network.inputs:
            raise ValueError(
                f"observations of shape {seen.shape} are not possible: they must be (N, {self.network.inputs})"
            )
        if self._state is None:
            self._state = self.network.first_state(len(seen))
        elif self._state and len(self._state[0][0]) != len(seen):
            raise ValueError(f"{len(seen)} observations after {len(self._state[0][0])}: reset between episodes")
        actions, self._state = self.network.forward(seen, self._state)
        return actions

    def reset(self) -> None:
        """Begin new episodes: forget what was seen."""
        self._state = None

    def policy(self, scenario: Scenario) -> Policy:
        """The agent as the driver of all agent flows in one run of `bbrgym.simulate`.

        Steps should be of `spec.interval_ms(scenario)`, as in training.
        """
        return policy_of(
            dataclasses.replace(self).predict, self.spec.observation, self.spec.action, scenario
        )  # a copy: with a memory of its own

    @property
    def content_hash(self) -> str:
        """SHA-256 of all that decides its gains: weights, observation and action."""
        config = self.spec.to_config()
        decisive = {"observation": config["observation"], "action": config["action"]}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
        digest.update(self.network.kind.encode())
        for name, array in sorted(self.network.to_arrays().items()):
            digest.update(f"{name} {array.shape}".encode())
            digest.update(_plain(array))
        return digest.hexdigest()

    @property
    def trained_network(self) -> Network:
        """The network.

        Raises:
            ValueError: it is a scripted agent, which has none.
        """
        if not isinstance(self.network, Network):
            raise ValueError(f"the scripted agent {self.training['algorithm']!r} has no network to be run elsewhere")
        return self.network

    def to_bytes(self) -> bytes:
        """All that decides its gains, and how often it decides, for `PolicyNetwork::Parse` in C++.

        docs/algorithms/policy.md has the format. Where the spec has `step_rtts`, the controller counts its own
        estimates of the base RTT.

        Raises:
            ValueError: it is a scripted agent, which has no network.
        """
        observation, action, network = self.spec.observation, self.spec.action, self.trained_network
        parts = [struct.pack("<8sII", b"bbrgympo", 2, len(observation.features))]
        parts += [struct.pack("<I", len(name)) + name for name in map(str.encode, observation.features)]
        interval_ns = 0 if self.spec.step_ms is None else max(1, round(self.spec.step_ms * 1e6))
        parts.append(struct.pack("<I4d", observation.history, *action.cwnd_gain, *action.pacing_gain))
        parts.append(struct.pack("<B", CWND_SCALES.index(action.cwnd_scale)))
        parts.append(struct.pack("<Qd", interval_ns, self.spec.step_rtts or 0.0))
        parts.append(struct.pack("<BB", ACTIVATIONS.index(network.activation), OUTPUTS.index(network.output)))
        parts.append(struct.pack("<I", len(network.lstm)))
        for of_input, of_state, bias in network.lstm:
            parts.append(struct.pack("<I", of_state.shape[1]) + b"".join(map(_plain, (of_input, of_state, bias))))
        parts.append(struct.pack("<I", len(network.layers)))
        for weight, bias in network.layers:
            parts.append(struct.pack("<I", len(bias)) + _plain(weight) + _plain(bias))
        return b"".join(parts)

    def to_onnx(self, path: Path | str) -> None:
        """Write the network as an ONNX model.

        Inputs and outputs are float32: `observations` (N, length of an observation) to `actions` (N, 2) in [-1, 1], the
        same as `predict`. A recurrent agent has besides, for each LSTM layer i, the inputs `hidden.i` and `cell.i`
        (N, H), zeros at the beginning of an episode, and the outputs `next_hidden.i` and `next_cell.i`, which are the
        inputs of the next step. What observations and actions mean is in the model's metadata, as JSON: `observation`,
        `action` and `env` (conf/'s groups), and the agent's `content_hash`.

        Args:
            path: the file; its folder must exist.

        Raises:
            ModuleNotFoundError: onnx is not installed.
            ValueError: it is a scripted agent, which has no network.
        """
        from bbrgym.agents.export import onnx_model

        Path(path).write_bytes(onnx_model(self).SerializeToString())

    def save(self, folder: Path) -> None:
        """Write `agent.json` and `policy.npz`, in place of what the folder had; whole or not at all.

        Raises:
            ValueError: it is a scripted agent, which is in no file.
        """
        if not isinstance(self.network, Network):
            raise ValueError(f"a scripted agent is not saved: its name, {self.training['algorithm']}, says it all")
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        np.savez(partial / "policy.npz", allow_pickle=False, **self.network.to_arrays())
        description = {
            "format": FORMAT,
            "bbrgym": bbrgym.__version__,
            "activation": self.network.activation,
            "output": self.network.output,
            "content_hash": self.content_hash,
            "training": dict(self.training),
            "spec": self.spec.to_config(),
        }
        (partial / "agent.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)


@dataclass(frozen=True)
class Network:
    """LSTM layers (none for most), fully connected layers, and what becomes of the last one's output.

    Args:
        layers: weights of shape (outputs, inputs) and biases of shape (outputs,), from the input on; the activation
            stands between them.
        lstm: for each LSTM layer the weights of its input, shape (4 H, inputs), and of its hidden state, (4 H, H), and
            biases, (4 H,), with torch's order of gates: input, forget, cell, output.
        activation: `tanh` or `relu`.
        output: `clip` to [-1, 1], or squash by `tanh`.

    Raises:
        ValueError: shapes that do not follow each other, or values that are not finite.
    """

    layers: tuple[tuple[Array, Array], ...]
    lstm: tuple[tuple[Array, Array, Array], ...] = ()
    activation: str = "tanh"
    output: str = "clip"

    def __post_init__(self) -> None:
        for what, value, known in (("activation", self.activation, ACTIVATIONS), ("output", self.output, OUTPUTS)):
            if value not in known:
                raise ValueError(f"no {what} {value!r}; known: {', '.join(known)}")
        if not self.layers:
            raise ValueError("the network has no layers")
        width = self.inputs
        for of_input, of_state, bias in self.lstm:
            hidden = of_state.shape[-1]
            if (of_input.shape, of_state.shape, bias.shape) != (
                (4 * hidden, width),
                (4 * hidden, hidden),
                (4 * hidden,),
            ):
                raise ValueError(f"an LSTM layer of shapes {of_input.shape}, {of_state.shape}, {bias.shape}")
            width = hidden
        for weight, bias in self.layers:
            if weight.shape != (len(bias), width):
                raise ValueError(f"a layer of shape {weight.shape} and bias {bias.shape} after {width} values")
            width = len(bias)
        if not all(np.isfinite(array).all() for array in self.to_arrays().values()):
            raise ValueError("the weights are not all finite")

    @property
    def kind(self) -> str:
        """What it is, beside its numbers."""
        return f"{self.activation} {self.output}"

    @property
    def inputs(self) -> int:
        """Length of an observation."""
        return int((self.lstm[0][0] if self.lstm else self.layers[0][0]).shape[-1])

    @property
    def outputs(self) -> int:
        """Length of an action."""
        return len(self.layers[-1][1])

    def first_state(self, n: int) -> list[tuple[Array, Array]]:
        """Hidden and cell state of each LSTM layer before the first of `n` observations; shape (n, H) each."""
        return [(np.zeros((n, s.shape[1]), np.float32), np.zeros((n, s.shape[1]), np.float32)) for _, s, _ in self.lstm]

    def forward(self, x: Array, state: list[tuple[Array, Array]]) -> tuple[Array, list[tuple[Array, Array]]]:
        """Actions of shape (N, outputs), and the state after them."""
        after = []
        for (of_input, of_state, bias), (hidden, cell) in zip(self.lstm, state, strict=True):
            gates = x @ of_input.T + hidden @ of_state.T + bias
            enter, forget, candidate, leave = np.split(gates, 4, axis=1)
            cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(candidate)
            x = _sigmoid(leave) * np.tanh(cell)
            after.append((x, cell))
        for weight, bias in self.layers[:-1]:
            x = x @ weight.T + bias
            x = np.tanh(x) if self.activation == "tanh" else np.maximum(x, np.float32(0))
        weight, bias = self.layers[-1]
        x = x @ weight.T + bias
        return (np.tanh(x) if self.output == "tanh" else np.clip(x, -1, 1)), after

    def with_standardised_inputs(self, mean: Array, scale: Array) -> Network:
        """The network that gives for x what this one gives for (x - mean) * scale; both of shape (inputs,)."""

        def fold(weight: Array, bias: Array) -> tuple[Array, Array]:
            exact = weight.astype(np.float64) * scale
            return exact.astype(np.float32), (bias - exact @ mean.astype(np.float64)).astype(np.float32)

        if self.lstm:
            (of_input, of_state, bias), *others = self.lstm
            of_input, bias = fold(of_input, bias)
            return dataclasses.replace(self, lstm=((of_input, of_state, bias), *others))
        (weight, bias), *layers = self.layers
        return dataclasses.replace(self, layers=(fold(weight, bias), *layers))

    def to_arrays(self) -> dict[str, Array]:
        """The weights by names, as policy.npz has them."""
        arrays: dict[str, Array] = {}
        for index, (of_input, of_state, bias) in enumerate(self.lstm):
            arrays |= {f"lstm.{index}.input": of_input, f"lstm.{index}.state": of_state, f"lstm.{index}.bias": bias}
        for index, (weight, bias) in enumerate(self.layers):
            arrays |= {f"layer.{index}.weight": weight, f"layer.{index}.bias": bias}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], activation: str, output: str) -> Network:
        """The inverse of `to_arrays`.

        Raises:
            ValueError: an array too many, or of another type than float32.
            KeyError: an array is missing.
        """
        for name, array in arrays.items():
            if array.dtype != np.float32:
                raise ValueError(f"{name} is of the type {array.dtype}, not float32")

        def count(kind: str) -> int:
            return len({name.split(".")[1] for name in arrays if name.startswith(f"{kind}.")})

        network = cls(
            layers=tuple(
                (arrays[f"layer.{index}.weight"], arrays[f"layer.{index}.bias"]) for index in range(count("layer"))
            ),
            lstm=tuple(
                (arrays[f"lstm.{index}.input"], arrays[f"lstm.{index}.state"], arrays[f"lstm.{index}.bias"])
                for index in range(count("lstm"))
            ),
            activation=activation,
            output=output,
        )
        if unknown := sorted(set(arrays) - set(network.to_arrays())):
            raise ValueError(f"an array {unknown[0]!r} that no network has")
        return network

    @classmethod
    def from_state(cls, algorithm: str, state: Mapping[str, Any], activation: str) -> Network:
        """The actor of a Stable-Baselines3 policy.

        Args:
            algorithm: `ppo`, `recurrent_ppo`, `sac` or `td3`.
            state: `model.policy.state_dict()`.
            activation: of the hidden layers.
        """
        arrays = {name: np.array(tensor.cpu().numpy(), dtype=np.float32) for name, tensor in state.items()}
        hidden, last, output = _ACTORS[algorithm]
        prefixes = [name.removesuffix(".weight") for name in arrays if re.fullmatch(hidden, name)]
        prefixes.sort(key=lambda prefix: int(prefix.rsplit(".", 1)[1]))
        prefixes += [last] if last else []
        lstm: list[tuple[Array, Array, Array]] = []
        while f"lstm_actor.weight_ih_l{len(lstm)}" in arrays:
            of_input, of_state, bias_1, bias_2 = (
                arrays[f"lstm_actor.{name}_l{len(lstm)}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            lstm.append((of_input, of_state, bias_1 + bias_2))
        layers = tuple((arrays[f"{prefix}.weight"], arrays[f"{prefix}.bias"]) for prefix in prefixes)
        return cls(layers, tuple(lstm), activation, output)


_ACTORS: Final[dict[str, tuple[str, str | None, str]]] = {
    "ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "recurrent_ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "sac": (r"actor\.latent_pi\.\d+\.weight", "actor.mu", "tanh"),
    "td3": (r"actor\.mu\.\d+\.weight", None, "tanh"),
}
"""By algorithm: names of its actor's layers in Stable-Baselines3, name of the last one if it is apart, and output."""

ALGORITHMS: Final = tuple(_ACTORS)
"""The learning algorithms whose agents are understood here."""


def _plain(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def _sigmoid(x: Array) -> Array:
    # By tanh: exp overflows for large negative values.
    squashed: Array = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1))
    return squashed
