"""Models of Stable-Baselines3, sb3-contrib and CleanRL: weights that torch saved.

Weights are read by `torch.load(weights_only=True)`, which refuses every pickle that is more than tensors and plain
containers. Of a Stable-Baselines3 zip's `data` only the JSON is read; its base64 pickles are not decoded.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from bbrgym.agents.importers.foreign import ForeignModel
from bbrgym.baselines.policy_file import ACTIVATIONS, Array, Network
from bbrgym.extras import optional
from bbrgym.files import DAMAGES, damage

with optional("importing weights of torch"):
    import torch

    from bbrgym.agents.actor import actor_network

_POLICIES: Final = (
    "stable_baselines3.common.policies",
    "stable_baselines3.sac.policies",
    "stable_baselines3.td3.policies",
    "sb3_contrib.ars.policies",
    "sb3_contrib.common.recurrent.policies",
    "sb3_contrib.tqc.policies",
)
"""Modules of the policies whose forward pass is known; a class of another module may compute anything."""

_FLATTEN: Final = "<class 'stable_baselines3.common.torch_layers.FlattenExtractor'>"
"""The feature extractor of a MlpPolicy: the observation as it is."""

_ACTOR: Final = {
    "ppo": r"action_net\.(weight|bias)|mlp_extractor\.policy_net\.\d+\.(weight|bias)",
    "recurrent_ppo": r"action_net\.(weight|bias)|mlp_extractor\.policy_net\.\d+\.(weight|bias)"
    r"|lstm_actor\.(weight|bias)_(ih|hh)_l\d+",
    "sac": r"actor\.latent_pi\.\d+\.(weight|bias)|actor\.mu\.(weight|bias)",
    "td3": r"actor\.mu\.\d+\.(weight|bias)",
    "ars": r"action_net\.\d+\.(weight|bias)",
}
"""By algorithm: the weights that decide a deterministic action."""

_NOT_ACTOR: Final = (
    r"log_std|(critic|critic_target|actor_target)\..*|actor\.log_std\..*|value_net\..*|mlp_extractor\.value_net\..*"
    r"|lstm_critic\..*"
)
"""Weights of critics, targets and exploration."""


def read_stable_baselines3(path: Path) -> ForeignModel:
    """Read a zip of `model.save(path)`: PPO, A2C, TRPO, RecurrentPPO, SAC, TQC, TD3, DDPG and ARS, of a Box.

    Raises:
        ValueError: its network, its spaces or its weights are none that a policy can have.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
            version = "_stable_baselines3_version"
            origin = archive.read(version).decode("ascii").strip() if version in archive.namelist() else ""
            with archive.open("policy.pth") as file:
                state = _load(file)
    except DAMAGES as error:
        raise ValueError(f"its zip is damaged or not safe to read: {damage(error)}") from error
    if not isinstance(data, Mapping):
        raise ValueError("its zip has no data of a model")
    weights = _weights(state)
    algorithm = _algorithm(weights)
    _check_policy(data, algorithm)
    unknown = [name for name in weights if not re.fullmatch(f"{_ACTOR[algorithm]}|{_NOT_ACTOR}", name)]
    if unknown:
        raise ValueError(
            f"its policy has weights beside fully connected layers and an LSTM: {', '.join(unknown[:3])}; feature "
            "extractors (CNNs, dictionaries), normalisation layers and squashing with gSDE cannot be imported"
        )
    _check_sequence(name for name in weights if re.fullmatch(_ACTOR[algorithm], name))
    if algorithm == "ars":
        weights = _with_biases(weights)
    try:
        network = actor_network(algorithm, weights, _activation(data, algorithm))
    except KeyError as error:  # the name of a weight
        raise ValueError(f"it has no {error.args[0]}") from error
    if algorithm == "ars" and _is_squashed(data, len(network.layers)):
        network = dataclasses.replace(network, output="tanh")
    shape, bounds = _box("observations", data.get("observation_space"), network.inputs)
    training = {"algorithm": algorithm, "steps": data.get("num_timesteps"), "seed": data.get("seed")}
    return ForeignModel(
        network=network,
        origin=f"Stable-Baselines3 {origin}".strip(),
        training={name: value for name, value in training.items() if isinstance(value, str | int)},
        shape=shape,
        bounds=bounds,
    )


def read_cleanrl(path: Path) -> ForeignModel:
    """Read weights of CleanRL's `Agent` (ppo_continuous_action) or `Actor` (sac_continuous_action, TD3, DDPG).

    A tuple or list of state dicts is read by its first one, the actor.

    Raises:
        ValueError: the weights are of no such network.
    """
    try:
        with path.open("rb") as file:
            state = _load(file)
    except DAMAGES as error:
        raise ValueError(f"it is damaged or not safe to read: {damage(error)}") from error
    if isinstance(state, tuple | list) and state:
        state = state[0]
    arrays = {name: weight.numpy() for name, weight in _weights(state).items()}
    hidden = sorted(int(found[1]) for name in arrays if (found := re.fullmatch(r"actor_mean\.(\d+)\.weight", name)))
    if hidden:
        _check_sequence(name for name in arrays if name.startswith("actor_mean."))
        prefixes = [f"actor_mean.{index}" for index in hidden]
        activation, output = "tanh", "clip"
        known = r"actor_mean\.\d+\.(weight|bias)|critic\..*|actor_logstd"
        algorithm = "ppo"
    elif "fc_mean.weight" in arrays or "fc_mu.weight" in arrays:
        last = "fc_mean" if "fc_mean.weight" in arrays else "fc_mu"
        count = sum(re.fullmatch(r"fc\d+\.weight", name) is not None for name in arrays)
        prefixes = [*(f"fc{index + 1}" for index in range(count)), last]
        activation, output = "relu", "tanh"
        known = rf"fc\d+\.(weight|bias)|{last}\.(weight|bias)|fc_logstd\.(weight|bias)|action_(scale|bias)"
        algorithm = "sac" if last == "fc_mean" else "td3"
        scale, bias = (arrays.get(name) for name in ("action_scale", "action_bias"))
        if scale is None or bias is None or (scale != 1).any() or (bias != 0).any():
            raise ValueError(
                "its actions must be in [-1, 1], as the environment's: action_scale 1 and action_bias 0, got "
                f"{scale} and {bias}"
            )
    else:
        raise ValueError(
            f"its weights ({', '.join(list(arrays)[:3])}, …) are none of CleanRL's continuous agents: actor_mean.… "
            "(PPO), fc1, fc2, fc_mean (SAC) or fc1, fc2, fc_mu (TD3, DDPG)"
        )
    if unknown := [name for name in arrays if not re.fullmatch(known, name)]:
        raise ValueError(f"it has weights that CleanRL's agent does not have: {', '.join(unknown[:3])}")
    missing = [name for prefix in prefixes for name in (f"{prefix}.weight", f"{prefix}.bias") if name not in arrays]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    layers = tuple((arrays[f"{prefix}.weight"], arrays[f"{prefix}.bias"]) for prefix in prefixes)
    return ForeignModel(Network(layers, (), activation, output), "CleanRL", {"algorithm": algorithm})


def _load(file: IO[bytes]) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            "its pickle holds more than tensors, and is not read: anything else in a pickle can run code"
        ) from error
    except DAMAGES as error:
        raise ValueError(f"torch cannot load its weights: {damage(error)}") from error


def _weights(state: Any) -> dict[str, torch.Tensor]:
    """Return the weights of a state_dict, dense and in single precision."""
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    ):
        raise ValueError("it is no state_dict: save the weights alone, with torch.save(agent.state_dict(), path)")
    if unreal := next((name for name, value in state.items() if value.is_complex()), None):
        raise ValueError(f"its weight {unreal} must be of real numbers, got complex ones")
    try:
        return {name: value.detach().cpu().to_dense().to(torch.float32) for name, value in state.items()}
    except DAMAGES as error:
        raise ValueError(f"it has a weight that is no array of numbers: {damage(error)}") from error


def _algorithm(state: Mapping[str, Any]) -> str:
    if "actor.latent_pi.0.weight" in state or "actor.mu.weight" in state:
        return "sac"
    if "actor.mu.0.weight" in state:
        return "td3"
    if "action_net.0.weight" in state:
        return "ars"
    if "action_net.weight" in state:
        return "recurrent_ppo" if any(name.startswith("lstm_actor.") for name in state) else "ppo"
    raise ValueError(
        f"its weights ({', '.join(list(state)[:3])}, …) are of no actor with continuous actions: PPO, A2C, "
        "TRPO, RecurrentPPO, SAC, TQC, TD3, DDPG and ARS can be imported"
    )


def _check_policy(data: Mapping[str, Any], algorithm: str) -> None:
    described = data.get("policy_class")
    module = described.get("__module__") if isinstance(described, Mapping) else None
    if module not in _POLICIES:
        raise ValueError(
            f"its policy class is of {module!r}, so the file does not say what it computes; the modules that can be "
            f"imported are {', '.join(_POLICIES)}"
        )
    arguments = data.get("policy_kwargs") or {}
    if not isinstance(arguments, Mapping):
        raise ValueError(f"its policy_kwargs must be a mapping, got {arguments!r}")
    extractor = arguments.get("features_extractor_class", _FLATTEN)
    if extractor != _FLATTEN:
        raise ValueError(f"its feature extractor must be {_FLATTEN}, got {extractor}")
    if data.get("use_sde") and ("ppo" not in algorithm or arguments.get("squash_output")):
        raise ValueError("it explores with gSDE (use_sde), whose actor has a bound that a policy does not have")
    shape, bounds = _box("actions", data.get("action_space"), 2)
    if shape != (2,) or (bounds["low"] != -1).any() or (bounds["high"] != 1).any():
        raise ValueError(
            f"its actions must be a Box(-1, 1, (2,)), got shape {shape}, low {bounds['low']} and high {bounds['high']}"
        )


def _with_biases(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of ARS with a bias of 0 for each layer that has none (with_bias=False)."""
    biases = {
        f"{name.removesuffix('weight')}bias": torch.zeros(weight.shape[:1])
        for name, weight in weights.items()
        if name.endswith(".weight")
    }
    return {**biases, **weights}


def _is_squashed(data: Mapping[str, Any], layers: int) -> bool:
    """Return whether an actor of ARS ends with a tanh: by default a MlpPolicy does, and a LinearPolicy does not."""
    arguments = data.get("policy_kwargs") or {}
    # The file does not name the class. A MlpPolicy has two hidden layers if it has no net_arch.
    is_linear = layers == 1 and "net_arch" not in arguments
    is_squashed = arguments.get("squash_output", not is_linear)
    if not isinstance(is_squashed, bool):
        raise ValueError(f"its squash_output must be true or false, got {is_squashed!r}")
    return is_squashed


def _activation(data: Mapping[str, Any], algorithm: str) -> str:
    kind = str((data.get("policy_kwargs") or {}).get("activation_fn", ""))
    if not kind:
        return "tanh" if "ppo" in algorithm else "relu"
    found = re.fullmatch(r"<class 'torch\.nn\.modules\.activation\.(\w+)'>", kind)
    name = found[1].lower() if found else kind
    if name not in ACTIVATIONS:
        raise ValueError(f"its activation is {found[1] if found else kind}; Tanh and ReLU can be imported")
    return name


def _check_sequence(names: Any) -> None:
    """Check that the layers of a torch Sequential alternate with activations, so that nothing is between them."""
    sequences: dict[str, set[int]] = {}
    for name in names:
        if found := re.fullmatch(r"(.*)\.(\d+)\.(weight|bias)", name):
            sequences.setdefault(found[1], set()).add(int(found[2]))
    for prefix, indices in sequences.items():
        if sorted(indices) != list(range(0, 2 * len(indices), 2)):
            raise ValueError(f"{prefix} has layers at {sorted(indices)}, where 0, 2, 4, … with an activation each fit")


def _box(what: str, space: Any, size: int) -> tuple[tuple[int, ...], dict[str, Array]]:
    """Return the shape and the flat bounds of a Box of `size` floats, from its description.

    NumPy prints the arrays in it, `[-1.  1.]`, but only both ends of more than 1000 values. What it leaves out is NaN.

    Raises:
        ValueError: it is another space, has other numbers, or does not say its shape or bounds.
    """
    description = space if isinstance(space, Mapping) else {}
    kind = str(description.get(":type:"))
    if not re.fullmatch(r"<class 'gym(nasium)?\.spaces\.box\.Box'>", kind):
        found = re.fullmatch(r"<class '(?:.*\.)?(\w+)'>", kind)
        raise ValueError(
            f"its {what} must be a Box of {size} floats, as the environment's, got {found[1] if found else 'no space'}"
        )
    if (numbers := description.get("dtype")) not in ("float32", "float64"):
        raise ValueError(f"its {what} must be a Box of float32 or float64, got {numbers}")
    shape = description.get("_shape", description.get("shape"))
    if not isinstance(shape, list) or not all(type(length) is int for length in shape) or math.prod(shape) != size:
        raise ValueError(f"its {what} must be a Box of {size} floats, got the shape {shape}")
    bounds = {name: _printed(f"the {name} of its {what}", description.get(name), size) for name in ("low", "high")}
    return tuple(shape), bounds


def _printed(what: str, text: Any, size: int) -> Array:
    """Return a flat array of what NumPy printed; NaN in place of `...`."""
    parts = re.sub(r"[\[\]]", " ", text).split("...") if isinstance(text, str) else []
    try:
        first = [float(number) for number in parts[0].split()]
        last = [float(number) for number in parts[-1].split()] if len(parts) > 1 else []
    except (IndexError, ValueError):
        first = last = []
    known = len(first) + len(last)
    if not known or known > size or (len(parts) == 1 and known < size) or any(map(math.isnan, first + last)):
        raise ValueError(f"{what} must be {size} numbers, got {text!r}")
    array = np.full(size, np.nan, np.float32)
    array[: len(first)] = first
    array[size - len(last) :] = last
    return array
