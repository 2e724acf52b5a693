"""A trained policy as files (`agent.json`, `policy.npz`) and as the bytes that C++ runs (docs/algorithms/policy.md).

Plain numbers: reading a policy executes nothing from its files and needs neither torch nor pickle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_name
from bbrgym.files import DAMAGES, check_object, damage, read_object

Array = npt.NDArray[np.float32]

FORMAT: Final = 1
ACTIVATIONS: Final = ("tanh", "relu")
OUTPUTS: Final = ("clip", "tanh")
CWND_SCALES: Final = ("ratio", "packets", "excess")
"""What equal steps of the action for cwnd_gain are: equal ratios of it, of the packets above one BDP, or of what the
gain has above 1. The order is that of the enumeration in C++."""
MODELS: Final = ("default", "bbr")
"""The models of the path that gains scale: `agent`'s, with the default values of its options, or with BBR's own."""

FOLDERS: Final = ("best", "final")
"""The subfolders of a training run that hold policies, preferred first."""
FILES: Final = ("agent.json", "policy.npz")
"""What a policy's folder has."""

SCRIPTED: Final = "scripted:"
"""Prefix of a scripted agent's name where the path of a trained one may be given."""

REFERENCE: Final = Path(__file__).parents[1] / "agents" / "reference"
"""The shipped policy: flows of algorithm `policy` run it unless they name another."""
KERNEL_REFERENCE: Final = REFERENCE.with_name("kernel")
"""The same for flows over the kernel's TCP: it was trained on BBR's own model of the path (docs/kernel.md)."""
LINEAR_REFERENCE: Final = REFERENCE.with_name("linear")
"""A policy of 16 weights for plain paths (docs/results/learned.md)."""


def policy_bytes(path: Path | str | None) -> bytes:
    """Return a policy as the controller `policy` runs it; cached until its files change.

    Args:
        path: as for `read_policy`; None is the shipped policy.

    Raises:
        FileNotFoundError: there is no policy at `path`.
        ValueError: its files cannot be read, or it is a scripted agent, which has no network.
    """
    folder = find_policy(REFERENCE if path is None else path)
    states = [os.stat(file) for file in (folder / "agent.json", folder / "policy.npz") if file.is_file()]
    return _policy_bytes(folder.absolute(), tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in states))


@lru_cache(maxsize=64)
def _policy_bytes(folder: Path, states: tuple[tuple[int, int, int], ...]) -> bytes:
    policy = read_policy(folder)
    try:
        return policy.to_bytes()
    except DAMAGES as error:
        raise ValueError(f"'{folder}' holds no policy that can be run: {damage(error)}") from error


def find_policy(path: Path | str) -> Path:
    """Return the folder of a policy: `path` itself, or the preferred one of a training run.

    Raises:
        FileNotFoundError: there is no policy at `path`.
        ValueError: it is a scripted agent, which has no network.
    """
    if str(path).startswith(SCRIPTED):
        raise ValueError(f"the scripted agent {str(path)!r} has no network: give the path of a trained agent")
    given = Path(path).expanduser()
    if given.name == "agent.json":
        given = given.parent
    folder = next((f for f in (given, *(given / name for name in FOLDERS)) if (f / "agent.json").is_file()), None)
    if folder is None:
        if given.is_file():
            command = shlex.join(["bbrgym", "import", str(given), "FOLDER"])
            raise FileNotFoundError(f"'{given}' is no agent's folder: make one with `{command}`")
        what = "it has no agent.json" if given.is_dir() else "there is no such folder"
        raise FileNotFoundError(f"no trained agent in '{given}': {what}; train one with `bbrgym train`")
    return folder


def read_policy(path: Path | str) -> StoredPolicy:
    """Read a trained policy.

    Args:
        path: a training run (its `best` policy, or `final` if there was no evaluation), or a policy's own folder.

    Raises:
        FileNotFoundError: there is no policy at `path`.
        ValueError: its files are of another version, damaged, or do not belong together, or it is a scripted agent.
    """
    folder = find_policy(path)
    try:
        description = read_object(folder / "agent.json")
        if description["format"] != FORMAT:
            raise ValueError(f"its format is {description['format']!r}, but this version reads {FORMAT}")
        with np.load(folder / "policy.npz", allow_pickle=False) as arrays:
            network = Network.from_arrays(
                {name: arrays[name] for name in arrays.files}, description["activation"], description["output"]
            )
        check_object(description, "agent.json", spec=dict, training=dict)
        policy = StoredPolicy(description["spec"], network, description["training"])
        if policy.content_hash != description["content_hash"]:
            raise ValueError("agent.json and policy.npz do not belong together")
    except DAMAGES as error:
        raise ValueError(f"'{folder}' holds no agent that can be loaded: {damage(error)}") from error
    return policy


@dataclass(frozen=True)
class StoredPolicy:
    """A trained policy as its folder holds it.

    Args:
        spec: the environment in which it was trained, as plain types with the groups of conf/. `observation`, `action`
            and `env` (the length of a step) decide how the policy works; the rest only says where it comes from.
        network: the weights.
        training: algorithm, steps, seed, reward in the last evaluation, and versions of the software (`made_with`).
    """

    spec: Mapping[str, Any]
    network: Network
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content_hash(self) -> str:
        """SHA-256 of everything that decides its gains: weights, observation and action."""
        return content_hash(self.spec, self.network.kind, self.network.to_arrays())

    def save(self, folder: Path) -> None:
        """Write `agent.json` and `policy.npz` at once; other files of the folder stay."""
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        # Without allow_pickle, which NumPy before 2.1 would store as an array; these are all float32.
        np.savez(partial / "policy.npz", **self.network.to_arrays())  # type: ignore[arg-type]
        description = {
            "format": FORMAT,
            "bbrgym": metadata.version("bbrgym"),
            "activation": self.network.activation,
            "output": self.network.output,
            "content_hash": self.content_hash,
            "training": dict(self.training),
            "spec": dict(self.spec),
        }
        # One line per entry: a scenario may have hundreds of rates.
        entries = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in description.items())
        (partial / "agent.json").write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")
        for other in folder.iterdir() if folder.is_dir() else ():
            if other.name not in FILES:
                other.rename(partial / other.name)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)

    def to_bytes(self) -> bytes:
        """Return everything that decides its gains, and how often it decides, for `PolicyNetwork::Parse` in C++.

        docs/algorithms/policy.md has the format. With `step_rtts` the controller counts its own estimates of the base
        RTT.
        """
        observation, action, env = (self.spec[group] for group in ("observation", "action", "env"))
        step_ms, step_rtts = env["step_ms"], env["step_rtts"]
        network = self.network
        version = 3 if network.skip is None else 4
        parts = [struct.pack("<8sII", b"bbrgympo", version, len(observation["features"]))]
        parts += [struct.pack("<I", len(name)) + name for name in map(str.encode, observation["features"])]
        interval_ns = 0 if step_ms is None else max(1, round(min(step_ms * 1e6, 2.0**62)))  # as steps of engines
        parts.append(struct.pack("<I4d", observation["history"], *action["cwnd_gain"], *action["pacing_gain"]))
        parts.append(struct.pack("<BB", CWND_SCALES.index(action["cwnd_scale"]), MODELS.index(action["model"])))
        parts.append(struct.pack("<Qd", interval_ns, step_rtts or 0.0))
        parts.append(struct.pack("<BB", ACTIVATIONS.index(network.activation), OUTPUTS.index(network.output)))
        parts.append(struct.pack("<I", len(network.lstm)))
        for of_input, of_state, bias in network.lstm:
            parts.append(struct.pack("<I", of_state.shape[1]) + b"".join(map(_plain, (of_input, of_state, bias))))
        parts.append(struct.pack("<I", len(network.layers)))
        for weight, bias in network.layers:
            parts.append(struct.pack("<I", len(bias)) + _plain(weight) + _plain(bias))
        if network.skip is not None:
            parts.append(_plain(network.skip))
        return b"".join(parts)


def decisions_of(training: Mapping[str, Any]) -> int | None:
    """Return how many decisions a policy has learned from, by what `bbrgym train` recorded; None: nobody knows.

    Those of the policy with which its training began count, too.
    """
    steps, earlier = training.get("steps"), training.get("earlier_steps", 0)
    return None if "imported" in training or steps is None or earlier is None else steps + earlier


def content_hash(spec: Mapping[str, Any], kind: str, arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of what decides an agent's gains: its observation, its action, and its numbers."""
    decisive = {"observation": spec["observation"], "action": spec["action"]}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
    digest.update(kind.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape}".encode())
        digest.update(_plain(array))
    return digest.hexdigest()


@dataclass(frozen=True)
class Network:
    """The weights of a policy: LSTM layers (none in most policies), fully connected layers, and perhaps a skip.

    Args:
        layers: weights of shape (outputs, inputs) and biases of shape (outputs,), from the input on, with the
            activation between them.
        lstm: per LSTM layer the weights of its input, shape (4 H, inputs), those of its hidden state, (4 H, H), and
            biases, (4 H,), with the gates in torch's order: input, forget, cell, output.
        activation: `tanh` or `relu`.
        output: what bounds the last layer: `clip` to [-1, 1], or `tanh`.
        skip: weights of shape (outputs, inputs): the observation itself adds so much to the last layer's values, before
            their bound. With a memory in the layers it is what the policy does about this step alone.

    Raises:
        ValueError: shapes that do not fit together, or values that are not finite.
    """

    layers: tuple[tuple[Array, Array], ...]
    lstm: tuple[tuple[Array, Array, Array], ...] = ()
    activation: str = "tanh"
    output: str = "clip"
    skip: Array | None = None

    def __post_init__(self) -> None:
        check_name("activation", self.activation, ACTIVATIONS)
        check_name("output", self.output, OUTPUTS)
        if not self.layers:
            raise ValueError("a network must have at least one layer")
        for name, array in self.to_arrays().items():
            dimensions = 1 if name.endswith("bias") else 2
            if array.ndim != dimensions:
                raise ValueError(f"{name} must have {dimensions} dimension(s), got the shape {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
        width = self.inputs
        for of_input, of_state, bias in self.lstm:
            hidden = of_state.shape[-1]
            if (of_input.shape, of_state.shape, bias.shape) != (
                (4 * hidden, width),
                (4 * hidden, hidden),
                (4 * hidden,),
            ):
                raise ValueError(
                    f"the LSTM layer of shapes {of_input.shape}, {of_state.shape} and {bias.shape} does not fit "
                    f"its {width} inputs"
                )
            width = hidden
        for weight, bias in self.layers:
            if weight.shape != (len(bias), width):
                raise ValueError(
                    f"the layer of shape {weight.shape} with {len(bias)} biases does not fit its {width} inputs"
                )
            width = len(bias)
        if self.skip is not None and self.skip.shape != (width, self.inputs):
            raise ValueError(
                f"skip.weight must have the shape ({width}, {self.inputs}) of outputs and inputs, got {self.skip.shape}"
            )

    @property
    def kind(self) -> str:
        """What it is besides its numbers, for the content hash."""
        return f"{self.activation} {self.output}"

    @property
    def inputs(self) -> int:
        """Length of an observation."""
        return int((self.lstm[0][0] if self.lstm else self.layers[0][0]).shape[-1])

    @property
    def outputs(self) -> int:
        """Length of an action."""
        return len(self.layers[-1][1])

    def with_standardised_inputs(self, mean: Array, scale: Array) -> Network:
        """Return the network that maps x to what this one maps (x - mean) * scale to; both of shape (inputs,)."""

        def fold(weight: Array, bias: Array) -> tuple[Array, Array]:
            exact = weight.astype(np.float64) * scale
            return exact.astype(np.float32), (bias - exact @ mean.astype(np.float64)).astype(np.float32)

        network = self
        if self.skip is not None:
            *first, (weight, bias) = self.layers
            skip, bias = fold(self.skip, bias)
            network = dataclasses.replace(self, layers=(*first, (weight, bias)), skip=skip)
        if network.lstm:
            (of_input, of_state, bias), *others = network.lstm
            of_input, bias = fold(of_input, bias)
            return dataclasses.replace(network, lstm=((of_input, of_state, bias), *others))
        (weight, bias), *layers = network.layers
        return dataclasses.replace(network, layers=(fold(weight, bias), *layers))

    def for_standardised_inputs(self, mean: Array, scale: Array) -> Network:
        """Return the network that maps (x - mean) * scale to what this one maps x to; both of shape (inputs,)."""
        return self.with_standardised_inputs(-mean * scale, (1 / scale).astype(np.float32))

    def widened(self, places: Sequence[int], inputs: int) -> Network:
        """Return a network with the same actions of more inputs.

        Args:
            places: where the inputs of this one are among them.
            inputs: how many there are; those at other places have weights of 0.
        """

        def widen(weight: Array) -> Array:
            wide = np.zeros((len(weight), inputs), np.float32)
            wide[:, places] = weight
            return wide

        skip = None if self.skip is None else widen(self.skip)
        if self.lstm:
            (of_input, of_state, bias), *others = self.lstm
            return dataclasses.replace(self, lstm=((widen(of_input), of_state, bias), *others), skip=skip)
        (weight, bias), *layers = self.layers
        return dataclasses.replace(self, layers=((widen(weight), bias), *layers), skip=skip)

    def to_arrays(self) -> dict[str, Array]:
        """Return the weights by the names that policy.npz has."""
        arrays: dict[str, Array] = {}
        for index, (of_input, of_state, bias) in enumerate(self.lstm):
            arrays |= {f"lstm.{index}.input": of_input, f"lstm.{index}.state": of_state, f"lstm.{index}.bias": bias}
        for index, (weight, bias) in enumerate(self.layers):
            arrays |= {f"layer.{index}.weight": weight, f"layer.{index}.bias": bias}
        if self.skip is not None:
            arrays["skip.weight"] = self.skip
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], activation: str, output: str) -> Network:
        """Return the network of `to_arrays`.

        Raises:
            ValueError: an array that is unknown, missing or not float32, or shapes that do not fit together.
        """
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype != np.float32:  # a file of another kind is bytes
                raise ValueError(f"{name} must be float32, got {getattr(array, 'dtype', type(array).__name__)}")

        def count(kind: str) -> int:
            return len({name.split(".")[1] for name in arrays if name.startswith(f"{kind}.")})

        def read(kind: str, *parts: str) -> tuple[Any, ...]:
            names = [[f"{kind}.{index}.{part}" for part in parts] for index in range(count(kind))]
            if missing := [name for layer in names for name in layer if name not in arrays]:
                raise ValueError(f"the array {missing[0]!r} is missing")
            return tuple(tuple(arrays[name] for name in layer) for layer in names)

        layers, lstm = read("layer", "weight", "bias"), read("lstm", "input", "state", "bias")
        network = cls(layers, lstm, activation, output, arrays.get("skip.weight"))
        if unknown := sorted(set(arrays) - set(network.to_arrays())):
            raise ValueError(f"unknown array {unknown[0]!r}")
        return network


def _plain(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()
