"""Manifests: all that decides a data set, as a JSON file, and the hashes of its shards."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

from bbrgym.benchmark.atlas import behaviour, trajectories
from bbrgym.benchmark.atlas.behaviour import Behaviour, Driver
from bbrgym.benchmark.code import code_hash
from bbrgym.checks import check_integer, check_keys, check_name, read_record
from bbrgym.envs import distribution, episode
from bbrgym.envs.action import Action
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import DEFAULT_FEATURES, Observation
from bbrgym.envs.reward import Reward
from bbrgym.files import DAMAGES, check_object, damage, read_object, replace_file

YARDSTICKS: Final = "yardsticks"
"""What the shards with the scenarios, and with what others reach in them, are called beside those of levels."""

MOST_SHARDS: Final = 1_000_000


@dataclass(frozen=True)
class Manifest:
    """A data set.

    Args:
        name: of the data set.
        description: a sentence about it.
        folder: of the manifest, in which its policies may lie.
        scenario: from which episodes are drawn: a name, or its plain mapping.
        spec: of the environment.
        default: features of the default observation.
        reference: features of a policy, which are observed, too.
        seed: decides everything random.
        episodes: per shard of a level. Those of the same number have the same scenario and seed in all levels.
        shards: per level, unless others are asked for.
        least_steps: flows that take part in fewer steps are left out.
        levels: what acts, by level; the behaviours take turns from episode to episode.
        yardsticks: what acts in the same scenarios, one at a time, to be compared with.
        hashes: of shards 0, 1, … by level; empty if none is recorded.
        made_with: what the hashes were recorded with: `code`, and software in words.

    Raises:
        ValueError: a value is not valid.
    """

    name: str
    description: str
    folder: Path
    scenario: str | Mapping[str, Any]
    spec: EpisodeSpec
    default: tuple[str, ...]
    reference: tuple[str, ...]
    seed: int
    episodes: int
    shards: int
    least_steps: int
    levels: Mapping[str, tuple[Behaviour, ...]]
    yardsticks: Mapping[str, Behaviour]
    hashes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The levels, and the yardsticks if there are any."""
        return (*self.levels, *([YARDSTICKS] if self.yardsticks else []))

    def recipe(self, kind: str) -> Recipe:
        """Return all that makes the shards of a level, or of the yardsticks.

        Raises:
            FileNotFoundError, ValueError: a policy is missing, or does not fit.
        """
        check_name("level", kind, self.kinds)
        acting = tuple(self.yardsticks.values()) if kind == YARDSTICKS else self.levels[kind]
        drivers = tuple(Driver(one, one.network(self.spec, self.folder)) for one in acting)
        return Recipe(
            kind=kind,
            spec=self.spec.to_config(),
            seed=self.seed,
            episodes=self.episodes,
            least_steps=self.least_steps,
            drivers=drivers,
            names=tuple(self.yardsticks) if kind == YARDSTICKS else tuple(one.text for one in acting),
        )

    def recorded(self, kind: str, shard: int) -> str | None:
        """Return the hash that a shard must have; None if none is recorded."""
        hashes = self.hashes.get(kind, ())
        return hashes[shard] if shard < len(hashes) else None


@dataclass(frozen=True)
class Recipe:
    """All that makes the shards of one kind, on any machine with the same code, without files.

    Attributes:
        kind: the level, or `YARDSTICKS`.
        spec: of the environment, as plain types.
        seed: see `Manifest`, as are the next two.
        episodes: see `Manifest`.
        least_steps: see `Manifest`.
        drivers: what acts.
        names: what each of them is called.
    """

    kind: str
    spec: Mapping[str, Any]
    seed: int
    episodes: int
    least_steps: int
    drivers: tuple[Driver, ...]
    names: tuple[str, ...]

    @cached_property
    def hash(self) -> str:
        """The hash of what is asked for, whatever code makes it."""
        plain = {
            "kind": self.kind,
            "spec": {name: value for name, value in self.spec.items() if name != "engine"},
            "seed": self.seed,
            "episodes": self.episodes,
            "least_steps": self.least_steps,
            "drivers": [driver.identity(self.spec) for driver in self.drivers],
        }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def atlas_code() -> str:
    """Return the hash of the code that makes shards: the native engine, and the modules in Python that decide."""
    modules = (behaviour, trajectories, distribution, episode)
    return code_hash("native", also="".join(map(inspect.getsource, modules)))


def manifest_names() -> list[str]:
    """Return the names of the data sets that come with the package."""
    folder = resources.files("bbrgym.conf") / "atlas"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def find_manifest(name: str) -> Path:
    """Return the file of a manifest, by a name of the package's or a path.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such name.
    """
    if name.endswith(".json") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise FileNotFoundError(f"there is no manifest '{name}'")
        return path
    check_name("data set", name, manifest_names())
    return Path(str(resources.files("bbrgym.conf") / "atlas" / f"{name}.json"))


_KEYS: Final = (
    "description",
    "scenario",
    "observation",
    "reference",
    "action",
    "reward",
    "env",
    "seed",
    "episodes",
    "shards",
    "least_steps",
    "levels",
    "yardsticks",
    "made_with",
    "hashes",
)


def read_manifest(name: str) -> Manifest:
    """Read a manifest, by a name of the package's or a path.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no manifest; the message names the bad value and the good ones.
    """
    path = find_manifest(name)
    try:
        plain = read_object(path, levels=dict)
        check_keys("manifest", plain, _KEYS)
        return _manifest(path, plain)
    except DAMAGES as error:
        raise ValueError(f"'{path}' is no manifest: {damage(error)}") from error


def _manifest(path: Path, plain: Mapping[str, Any]) -> Manifest:
    name = path.stem
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"its file must have a name of small letters, digits, '-' and '_', got {name!r}")
    default = _names("observation", plain.get("observation")) or DEFAULT_FEATURES
    reference = _names("reference", plain.get("reference"))
    # Those of the policy come first, so that its sums over them have the order that they have in its flow.
    features = tuple(dict.fromkeys((*reference, *default)))
    env = check_object(plain.get("env") or {}, "env")
    check_keys("env", env, ("step_ms", "step_rtts"))
    scenario = plain.get("scenario")
    if not isinstance(scenario, str):
        scenario = check_object(scenario, "scenario")
    spec = EpisodeSpec(
        scenario=scenario,
        observation=Observation(features),
        action=read_record(Action, "action", plain.get("action") or {}),
        reward=read_record(Reward, "reward", plain.get("reward") or {}),
        engine="native",
        engine_options={"threads": 1},
        **{"step_ms": 100.0, **env},
    )
    levels = {}
    for level, behaviours in plain["levels"].items():
        if level == YARDSTICKS or not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", level):
            raise ValueError(f"a level must have a name of small letters, digits, '-' and '_', got {level!r}")
        if not isinstance(behaviours, list) or not behaviours:
            raise ValueError(f"level {level} must be a list of behaviours, got {behaviours!r}")
        levels[level] = tuple(Behaviour.of(f"level {level}", one) for one in behaviours)
    if not levels:
        raise ValueError("it must have a level")
    yardsticks, hashes, made_with = (
        check_object(plain.get(key) or {}, key) for key in ("yardsticks", "hashes", "made_with")
    )
    return Manifest(
        name=name,
        description=str(plain.get("description", "")),
        folder=path.parent,
        scenario=scenario,
        spec=spec,
        default=default,
        reference=reference,
        seed=check_integer("seed", plain.get("seed", 1), at_least=0, below=2**31),
        episodes=check_integer("episodes", plain.get("episodes"), at_least=1, at_most=4096),
        shards=check_integer("shards", plain.get("shards", 1), at_least=1, at_most=MOST_SHARDS),
        least_steps=check_integer("least_steps", plain.get("least_steps", 2), at_least=1),
        levels=levels,
        yardsticks={name: Behaviour.of(f"yardstick {name}", one) for name, one in yardsticks.items()},
        hashes={kind: _names(f"hashes of {kind}", of_shards) for kind, of_shards in hashes.items()},
        made_with={key: str(value) for key, value in made_with.items()},
    )


def _names(key: str, value: object) -> tuple[str, ...]:
    """Return a list of names, which may be missing."""
    if not isinstance(value or [], list):
        raise ValueError(f"{key} must be a list of names, got {value!r}")
    return tuple(map(str, value or []))  # type: ignore[call-overload]


def check_record(manifest: Manifest, kinds: Sequence[str], shards: Sequence[int], made_with: Mapping[str, str]) -> None:
    """Check that hashes of these levels and shards can take the place of what is recorded.

    Raises:
        ValueError: shards are missing; or other levels stay, which other code has recorded.
    """
    most = max((len(manifest.hashes.get(kind, ())) for kind in kinds), default=0)
    if [*shards] != [*range(len(shards))] or len(shards) < most:
        text = ",".join(map(str, shards))
        raise ValueError(f"--record needs all shards from 0 on, and those that are recorded ({most}), got {text}")
    left = [kind for kind in manifest.hashes if kind not in kinds]
    if left and manifest.made_with.get("code") != made_with["code"]:
        raise ValueError(f"--record needs all levels, as other code has recorded {', '.join(left)}")


def record(name: str, hashes: Mapping[str, Sequence[str]], made_with: Mapping[str, str]) -> Path:
    """Write the hashes of shards into a manifest, in the place of those of the same levels, and return its file.

    Raises:
        OSError: it cannot be written.
    """
    path = find_manifest(name)
    plain = read_object(path)
    merged = {**(plain.get("hashes") or {}), **{kind: list(of_shards) for kind, of_shards in hashes.items()}}
    plain |= {"made_with": dict(made_with), "hashes": merged}
    replace_file(path, lambda to: to.write_text(manifest_text(plain), encoding="utf-8"))
    return path


def manifest_text(plain: Mapping[str, Any]) -> str:
    """Return a manifest as a file: one line per entry, and per level, behaviour and yardstick."""
    lines = []
    for key, value in plain.items():
        if key in ("levels", "yardsticks", "hashes") and value:
            inner = []
            for name, entry in value.items():
                text = json.dumps(entry, ensure_ascii=False)
                if key in ("levels", "hashes") and len(text) > 100:
                    rows = ",\n".join(f"   {json.dumps(one, ensure_ascii=False)}" for one in entry)
                    text = f"[\n{rows}\n  ]"
                inner.append(f"  {json.dumps(name)}: {text}")
            text = "{\n" + ",\n".join(inner) + "\n }"
        else:
            text = json.dumps(value, ensure_ascii=False)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
