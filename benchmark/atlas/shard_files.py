"""Shards as Parquet files: what they are made of, how they were made, and reading them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.benchmark.atlas.manifest import YARDSTICKS, Recipe
from bbrgym.benchmark.atlas.trajectories import Digests, Trajectories, Yardsticks
from bbrgym.extras import optional
from bbrgym.files import DAMAGES, check_object, damage

if TYPE_CHECKING:
    import pyarrow as pa

_KEY: Final = b"bbrgym.atlas"
"""The entry of a file's metadata that has its `ShardFacts`."""

_STEP_COLUMNS: Final = ("action_cwnd", "action_pacing", "reward", "terminated", "truncated")
"""Null in the row of a flow's last observation."""


@dataclass(frozen=True)
class ShardFacts:
    """What a file says of its shard.

    Attributes:
        kind: the level, or `YARDSTICKS`.
        shard: its number.
        recipe: `Recipe.hash` of what made it.
        code: `atlas_code` of what made it.
        made_with: software and machine in words.
        hash: of the shard.
        digests: of its arrays.
        flows: how many trajectories it has, or scenarios.
        steps: how many decisions; 0 of yardsticks.
        reward: mean per decision; None of yardsticks, or without a decision.
        names: what the behaviours are called.
    """

    kind: str
    shard: int
    recipe: str
    code: str
    made_with: str
    hash: str
    digests: Digests
    flows: int
    steps: int
    reward: float | None
    names: tuple[str, ...]


def shard_path(folder: Path, kind: str, shard: int) -> Path:
    """Return where a shard lies in the folder of a data set."""
    return folder / kind / f"{shard:06d}.parquet"


def to_parquet(shard: Trajectories | Yardsticks, facts: ShardFacts, recipe: Recipe) -> bytes:
    """Return a shard as a Parquet file."""
    with optional("the atlas"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    if isinstance(shard, Yardsticks):
        table = _yardstick_table(shard, facts.names)
    else:
        table = _step_table(shard, recipe.spec["observation"]["features"])
    text = json.dumps(asdict(facts))
    table = table.replace_schema_metadata({_KEY: text.encode()})
    floats = [one.name for one in table.schema if pa.types.is_floating(one.type)]
    others = [one.name for one in table.schema if one.name not in floats]
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=others, use_byte_stream_split=floats)
    return buffer.getvalue()


def read_facts(path: Path) -> ShardFacts:
    """Read what a file says of its shard.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: it is damaged, or of another kind.
    """
    with optional("the atlas"):
        import pyarrow.parquet as pq
    try:
        return _facts(path, pq.read_schema(path).metadata)
    except FileNotFoundError:
        raise
    except DAMAGES as error:
        raise ValueError(f"'{path}' is damaged: {damage(error)}") from error


def read_shard(path: Path) -> tuple[Trajectories | Yardsticks, ShardFacts]:
    """Read a shard.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: it is damaged, or of another kind.
    """
    with optional("the atlas"):
        import pyarrow.parquet as pq
    try:
        table = pq.read_table(path, partitioning=None)
        facts = _facts(path, table.schema.metadata)
        shard = _yardsticks(table, facts.names) if facts.kind == YARDSTICKS else _trajectories(table)
        return shard, facts
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no shard '{path}': make it with `bbrgym atlas make`") from error
    except DAMAGES as error:
        raise ValueError(f"'{path}' is damaged: {damage(error)}") from error


def _facts(path: Path, metadata: Mapping[bytes, bytes] | None) -> ShardFacts:
    if not metadata or _KEY not in metadata:
        raise ValueError(f"'{path}' is no shard of the atlas")
    plain = check_object(json.loads(metadata[_KEY]), f"metadata of '{path}'", digests=dict, names=list)
    return ShardFacts(**plain | {"names": tuple(plain["names"])})


def _step_table(shard: Trajectories, features: Sequence[str]) -> pa.Table:
    """Return a row per observation."""
    import pyarrow as pa

    rows = shard.lengths + 1
    flow_of = np.repeat(np.arange(len(rows)), rows)
    ends = rows.cumsum() - 1
    is_last = np.zeros(int(rows.sum()), np.bool_)
    is_last[ends] = True
    step = np.arange(len(is_last)) - np.repeat(ends - shard.lengths, rows) + shard.first_steps[flow_of]
    columns: dict[str, Any] = {
        "episode": shard.episodes[flow_of],
        "flow": shard.flows[flow_of],
        "behaviour": shard.behaviours[flow_of],
        "step": step,
    }
    columns |= {name: np.ascontiguousarray(shard.observations[:, index]) for index, name in enumerate(features)}

    def of_steps(values: npt.NDArray[Any]) -> Any:
        whole = np.zeros(len(is_last), values.dtype)
        whole[~is_last] = values
        return pa.array(whole, mask=is_last)

    values = (*shard.actions.T, shard.rewards, shard.terminated, shard.truncated)
    columns |= {name: of_steps(value) for name, value in zip(_STEP_COLUMNS, values, strict=True)}
    return pa.table(columns)


def _trajectories(table: pa.Table) -> Trajectories:
    found = {name: table.column(name) for name in table.column_names}
    is_last = np.asarray(found["reward"].is_null())
    if len(is_last) and not is_last[-1]:
        raise ValueError("it does not end with a flow's last observation")
    ends = np.flatnonzero(is_last)
    begins = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: len(ends)]
    whole = {name: found.pop(name).to_numpy()[begins] for name in ("episode", "flow", "behaviour", "step")}
    steps = {name: found.pop(name).drop_null().to_numpy() for name in _STEP_COLUMNS}
    nothing = np.zeros((len(found), len(is_last)), np.float32)
    for row, column in zip(nothing, found.values(), strict=True):
        row[:] = column.to_numpy()
    return Trajectories(
        episodes=whole["episode"],
        flows=whole["flow"],
        behaviours=whole["behaviour"],
        first_steps=whole["step"],
        lengths=(ends - begins).astype(np.int64),
        observations=np.ascontiguousarray(nothing.T),
        actions=np.stack([steps["action_cwnd"], steps["action_pacing"]], axis=1),
        rewards=steps["reward"],
        terminated=steps["terminated"].astype(np.bool_),
        truncated=steps["truncated"].astype(np.bool_),
    )


def _yardstick_table(shard: Yardsticks, names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {"episode": shard.episodes, "seed": shard.seeds, "scenario": list(shard.scenarios)}
    return pa.table(columns | dict(zip(names, map(np.ascontiguousarray, shard.rewards.T), strict=True)))


def _yardsticks(table: pa.Table, names: Sequence[str]) -> Yardsticks:
    rewards = [table.column(name).to_numpy() for name in names]
    return Yardsticks(
        episodes=table.column("episode").to_numpy(),
        seeds=table.column("seed").to_numpy(),
        scenarios=tuple(table.column("scenario").to_pylist()),
        rewards=np.ascontiguousarray(np.stack(rewards, axis=1)),
    )
