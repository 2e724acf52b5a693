"""Making shards: on an executor, one file each, so that what is there is not made twice."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rich.console import Console
from rich.progress import track

from bbrgym.benchmark.atlas.manifest import YARDSTICKS, Manifest, Recipe, atlas_code
from bbrgym.benchmark.atlas.shard_files import ShardFacts, read_facts, shard_path, to_parquet
from bbrgym.benchmark.atlas.trajectories import (
    Trajectories,
    Yardsticks,
    digests,
    make_trajectories,
    make_yardsticks,
    shard_hash,
)
from bbrgym.benchmark.code import made_with
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.executors import TaskExecutor, run_in_chunks
from bbrgym.files import replace_file


@dataclass(frozen=True)
class ShardJob:
    """A shard to make."""

    recipe: Recipe
    shard: int

    @property
    def name(self) -> str:
        """What errors and progress call it: `expert 3`."""
        return f"{self.recipe.kind} {self.shard}"


def make_shards(
    manifest: Manifest,
    kinds: Sequence[str],
    shards: Sequence[int],
    folder: Path,
    executor: TaskExecutor,
    console: Console | None = None,
) -> list[ShardFacts]:
    """Make the shards that are not in a folder yet, and return the facts of all of them.

    Args:
        manifest: of the data set.
        kinds: levels, or `YARDSTICKS`.
        shards: their numbers, of each kind.
        folder: where files are written.
        executor: where shards are made.
        console: shows the progress; None for none.

    Raises:
        EngineError: some shards failed; the others are kept.
    """
    jobs = [ShardJob(recipe, shard) for recipe in map(manifest.recipe, kinds) for shard in shards]
    todo = [job for job in jobs if not _is_made(job, folder)]
    errors = []
    with closing(make_each(todo, executor)) as made:
        shown = track(made, "shards", total=len(todo), console=console, disable=console is None)
        for job, error, content in shown:
            if error is not None:
                errors.append(f"{job.name}: {error}")
                continue
            path = shard_path(folder, job.recipe.kind, job.shard)
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, lambda to, content=content: to.write_bytes(content))  # type: ignore[misc]
    if errors:
        raise EngineError(f"{len(errors)} of {len(jobs)} shards failed; the same command repeats these: {errors[0]}")
    return [read_facts(shard_path(folder, job.recipe.kind, job.shard)) for job in jobs]


def make_each(
    jobs: Sequence[ShardJob], executor: TaskExecutor
) -> Generator[tuple[ShardJob, str | None, bytes], None, None]:
    """Yield each job, why it failed, and the file that it made; as many files as workers are in memory."""
    # One shard in each call: a result is a whole file.
    with closing(run_in_chunks(make_file, jobs, executor, chunk_s=0.0)) as results:
        for result in results:
            yield result.task, result.error, result.value or b""


def make_file(job: ShardJob) -> bytes:
    """Make a shard, on a worker, and return its Parquet file."""
    shard = make_shard(job)
    return to_parquet(shard, facts_of(shard, job), job.recipe)


def make_shard(job: ShardJob) -> Trajectories | Yardsticks:
    """Make a shard.

    Raises:
        EngineError: an engine failed.
        ValueError: an algorithm has no actions.
    """
    recipe = job.recipe
    spec = _spec(json.dumps(recipe.spec))
    episodes = range(job.shard * recipe.episodes, (job.shard + 1) * recipe.episodes)
    if recipe.kind == YARDSTICKS:
        return make_yardsticks(spec, recipe.drivers, recipe.seed, episodes, recipe.least_steps)
    return make_trajectories(spec, recipe.kind, recipe.drivers, recipe.seed, episodes, recipe.least_steps)


@lru_cache(maxsize=4)
def _spec(plain: str) -> EpisodeSpec:
    """Return a specification; checking a large distribution takes longer than a shard."""
    return EpisodeSpec.from_config(json.loads(plain))


def facts_of(shard: Trajectories | Yardsticks, job: ShardJob) -> ShardFacts:
    """Return what a file says of a shard that was made here."""
    of_arrays = digests(shard)
    is_level = isinstance(shard, Trajectories)
    steps = len(shard.rewards) if is_level else 0
    return ShardFacts(
        kind=job.recipe.kind,
        shard=job.shard,
        recipe=job.recipe.hash,
        code=atlas_code(),
        made_with=made_with(),
        hash=shard_hash(of_arrays),
        digests=of_arrays,
        flows=len(shard.episodes),
        steps=steps,
        reward=math.fsum(shard.rewards.ravel().tolist()) / steps if steps else None,
        names=job.recipe.names,
    )


def _is_made(job: ShardJob, folder: Path) -> bool:
    """Return whether the file of a shard is there, of this recipe and this code; `verify` reads what is in it."""
    try:
        facts = read_facts(shard_path(folder, job.recipe.kind, job.shard))
    except (FileNotFoundError, ValueError):
        return False
    return (facts.kind, facts.shard, facts.recipe, facts.code) == (
        job.recipe.kind,
        job.shard,
        job.recipe.hash,
        atlas_code(),
    )
