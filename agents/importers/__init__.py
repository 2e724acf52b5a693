"""Models of other libraries become agents: from Stable-Baselines3, CleanRL and ONNX (docs/import.md)."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bbrgym.agents.card import GIVEN, TRAINED_IN
from bbrgym.agents.importers.foreign import ForeignModel
from bbrgym.agents.policy import Agent
from bbrgym.baselines.policy_file import Array
from bbrgym.checks import check_keys
from bbrgym.conf import ENVIRONMENT_GROUPS
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.files import DAMAGES, damage


def import_model(
    path: str | Path, config: Mapping[str, Any], statistics: str | Path | None = None, ignores_clipping: bool = False
) -> Agent:
    """Read a model of another library as an agent. Nothing in the file is executed.

    Args:
        path: a zip of Stable-Baselines3 or sb3-contrib, a file of `torch.save(agent.state_dict(), …)` as CleanRL writes
            it, or an ONNX model.
        config: the environment that the model was trained in, as for `EpisodeSpec.from_config`; what is not given is
            as in `bbrgym/Bottleneck-v1`. Without a scenario, a reward or an engine, the agent's card calls it unknown.
            A model that `bbrgym export` wrote says itself what it observes, how its actions become gains and how long a
            step is.
        statistics: a file of `numpy.savez` with `mean` and `var` of the observations, and optionally `epsilon` (1e-8)
            and `clip` (10): what VecNormalize or Gymnasium's NormalizeObservation subtracted, divided by and clipped
            to.
        ignores_clipping: fold the statistics into the weights even if observations can be so rare that they were
            clipped in training, which the agent does not do.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is none of these, or the model cannot be expressed as a policy; the message says why.
        ModuleNotFoundError: torch or onnx is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}' to import")
    try:
        check_keys("config", config, ENVIRONMENT_GROUPS)
        model = _read(path)
        spec = _spec(config, model)
        _check_observations(model, spec, statistics is not None)
        network = model.network
        if statistics is not None:
            network = network.with_standardised_inputs(*_read_statistics(Path(statistics), spec, ignores_clipping))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        given = [group for group in TRAINED_IN if group in config]
        origin = {"imported": model.origin, "sha256": digest, GIVEN: given}
        return Agent(spec, network, {**model.training, **origin})
    except ValueError as error:
        raise ValueError(f"'{path}' cannot be imported: {error}") from error


def _spec(config: Mapping[str, Any], model: ForeignModel) -> EpisodeSpec:
    """Return what a model was trained in.

    Raises:
        ValueError: the configuration contradicts what the file says of itself.
    """
    given, default = (EpisodeSpec.from_config({"scenario": "default", **one}) for one in (config, {}))
    spec = EpisodeSpec.from_config({"scenario": "default", **config, **model.settings})
    for group in model.settings:
        own, asked, usual = (one.policy_config()[group] for one in (spec, given, default))
        for name, value in asked.items():
            if value not in (own[name], usual[name]):
                raise ValueError(f"its file says {group}.{name}={own[name]}, so it cannot be {value}")
    return spec


def _read(path: Path) -> ForeignModel:
    # The imports are here, because they need different optional dependencies.
    names: list[str] = []
    try:
        if is_zip := zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
    except DAMAGES as error:
        raise ValueError(f"its zip is damaged: {damage(error)}") from error
    if is_zip:
        if {"data", "policy.pth"} <= set(names):
            from bbrgym.agents.importers.torch_models import read_stable_baselines3

            return read_stable_baselines3(path)
        if any(name.endswith("data.pkl") for name in names):
            from bbrgym.agents.importers.torch_models import read_cleanrl

            return read_cleanrl(path)
        raise ValueError(
            "it is a zip file, but neither of Stable-Baselines3 (data, policy.pth) nor of torch (data.pkl)"
        )
    if path.suffix == ".onnx":
        from bbrgym.agents.importers.onnx_graph import read_onnx

        return read_onnx(path)
    raise ValueError(
        "it must be a zip of Stable-Baselines3, a state_dict that torch.save wrote (.cleanrl_model, .pt, .pth) "
        "or an ONNX model (.onnx)"
    )


def _check_observations(model: ForeignModel, spec: EpisodeSpec, is_normalised: bool) -> None:
    """Check what the file says of its observations; the agent checks their number."""
    observation = spec.observation
    inputs, features = model.network.inputs, len(observation.features)
    if inputs != features * observation.history:
        if inputs % features == 0:
            raise ValueError(
                f"the network takes {inputs} values, but observations have {features * observation.history}: for "
                f"{inputs // features} stacked steps of {features} features, give observation.history="
                f"{inputs // features}"
            )
        return
    longer = [size for size in model.shape or (inputs,) if size > 1]
    if longer not in ([size for size in shape if size > 1] for shape in ((inputs,), (observation.history, features))):
        raise ValueError(
            f"its observations must have the shape ({inputs},) or (history, features) = "
            f"({observation.history}, {features}), got {model.shape}"
        )
    low, high = (model.bounds.get(name, np.full(inputs, np.nan)) for name in ("low", "high"))
    known = np.concatenate([low, high])
    known = known[~np.isnan(known)]
    if known.size and np.isinf(known).all():
        if is_normalised:
            return  # as Gymnasium's NormalizeObservation returns them
        raise ValueError(
            "its observations have no bounds, as after Gymnasium's NormalizeObservation: give the statistics of the "
            "normalisation (--statistics)"
        )
    for name, found, expected in (("low", low, observation.space.low), ("high", high, observation.space.high)):
        different = _different(found, expected)
        # Stable-Baselines3's VecFrameStack repeats each bound, although it concatenates the frames.
        if different.size and _different(found, np.repeat(expected[:features], observation.history)).size:
            index = int(different[0])
            feature = observation.features[index % features]
            raise ValueError(
                f"the {name} bound of its observation {index} is {found[index]:g}, but that of {feature} is "
                f"{expected[index]:g}: give the features that it was trained with (observation.features=[…])"
            )


def _different(found: Array, expected: Array) -> npt.NDArray[np.intp]:
    return np.flatnonzero(~np.isnan(found) & ~np.isclose(found, expected, rtol=1e-4, atol=1e-6))


def _read_statistics(path: Path, spec: EpisodeSpec, ignores_clipping: bool) -> tuple[Any, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            given = {name: np.asarray(arrays[name]) for name in arrays.files}
    except DAMAGES as error:
        raise ValueError(f"the statistics '{path}' are no file of numpy.savez: {damage(error)}") from error
    space = spec.observation.space
    shapes = {"mean": space.shape, "var": space.shape, "epsilon": (), "clip": ()}
    given = {"epsilon": np.array(1e-8), "clip": np.array(10.0), **given}
    frame = (len(spec.observation.features),)
    for name in ("mean", "var"):
        if name in given and given[name].shape == frame:  # they were normalised before they were stacked
            given[name] = np.tile(given[name], spec.observation.history)
    for name, shape in shapes.items():
        found = given.get(name)
        if found is None or found.shape != shape or found.dtype.kind not in "fiu" or not np.isfinite(found).all():
            got = found if found is None or found.shape == shape else f"shape {found.shape}"
            raise ValueError(f"the statistics must have a finite {name!r} of shape {shape}, got {got}")
        given[name] = found.astype(np.float64)
    for name, low in (("var", given["var"].min()), ("epsilon", given["epsilon"]), ("clip", given["clip"])):
        if low < 0:
            raise ValueError(f"the statistics must have {name!r} >= 0, got {low:g}")
    if ((variance := given["var"] + given["epsilon"]) == 0).any():
        raise ValueError("the statistics must have 'epsilon' > 0 if a 'var' is 0")
    scale, clip = 1.0 / np.sqrt(variance), float(given["clip"])
    extreme = np.maximum(np.abs(space.low - given["mean"]), np.abs(space.high - given["mean"])) * scale
    if not ignores_clipping and (extreme > clip).any():
        bound = str(clip).removesuffix(".0")
        raise ValueError(
            f"normalised observations were clipped to {bound}, and {_clipped(spec, extreme, clip)} can exceed that: "
            "a policy cannot clip its observations; --ignore-clipping imports it without"
        )
    return given["mean"], scale


def _clipped(spec: EpisodeSpec, extreme: npt.NDArray[np.float64], clip: float) -> str:
    """Return the features that can exceed what they were clipped to, how far, and in which frames of the history."""
    history, found = spec.observation.history, []
    for feature, values in zip(spec.observation.features, extreme.reshape(history, -1).T, strict=True):
        frames = [str(frame + 1) for frame in np.flatnonzero(values > clip)]
        if frames:
            noun = "frame" if len(frames) == 1 else "frames"
            where = f" in {noun} {', '.join(frames)} of {history}" if history > 1 else ""
            found.append(f"{feature} (up to {_above(clip, values.max())}{where})")
    return ", ".join(found)


def _above(bound: float, value: float) -> str:
    """Return a number above a bound with as many digits as show that it is, at least three."""
    texts = (f"{value:.{digits}g}" for digits in range(3, 18))
    return next(text for text in texts if float(text) > bound)
