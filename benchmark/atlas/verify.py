"""Verifying shards: a hash that is wrong says of which shard, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bbrgym.benchmark.atlas.make import ShardJob, facts_of, make_shard
from bbrgym.benchmark.atlas.manifest import Manifest, atlas_code
from bbrgym.benchmark.atlas.shard_files import ShardFacts, read_shard, shard_path
from bbrgym.benchmark.atlas.trajectories import Digests, digests, shard_hash
from bbrgym.executors import TaskExecutor, run_in_chunks

Verdict = Literal["equal", "unrecorded", "missing", "damaged", "different"]

GOOD: Final[tuple[Verdict, ...]] = ("equal", "unrecorded")
"""`unrecorded`: the file is whole, but the manifest has no hash for it."""


@dataclass(frozen=True)
class Check:
    """What was found of a shard.

    Attributes:
        kind: the level, or `YARDSTICKS`.
        shard: its number.
        verdict: see `Verdict`.
        reason: why it is not equal; empty if it is.
    """

    kind: str
    shard: int
    verdict: Verdict
    reason: str = ""

    @property
    def line(self) -> str:
        """What is printed of it."""
        return f"{self.kind} {self.shard}: {self.verdict}" + (f": {self.reason}" if self.reason else "")


def check_files(manifest: Manifest, kinds: Sequence[str], shards: Sequence[int], folder: Path) -> Iterator[Check]:
    """Read the shards of a folder, and compare their content with the hashes of the manifest.

    Args:
        manifest: of the data set.
        kinds: levels, or `YARDSTICKS`.
        shards: their numbers, of each kind.
        folder: in which the files are.

    Yields:
        What was found of each.
    """
    for kind in kinds:
        job = ShardJob(manifest.recipe(kind), 0)
        for shard in shards:
            yield _check_file(manifest, ShardJob(job.recipe, shard), folder)


def check_again(
    manifest: Manifest, kinds: Sequence[str], shards: Sequence[int], executor: TaskExecutor
) -> Iterator[Check]:
    """Make shards on an executor, and compare them with the hashes of the manifest.

    No file is read or written. The other arguments are those of `check_files`.

    Yields:
        What was found of each, as it comes.
    """
    jobs = [ShardJob(recipe, shard) for recipe in map(manifest.recipe, kinds) for shard in shards]
    with closing(run_in_chunks(_make_facts, jobs, executor, chunk_s=0.0)) as results:
        for result in results:
            job = result.task
            if result.error is not None:
                yield Check(job.recipe.kind, job.shard, "different", f"it cannot be made: {result.error}")
            else:
                yield _compare(manifest, job, result.value)


def _make_facts(job: ShardJob) -> ShardFacts:
    return facts_of(make_shard(job), job)


def _check_file(manifest: Manifest, job: ShardJob, folder: Path) -> Check:
    kind, number = job.recipe.kind, job.shard
    path = shard_path(folder, kind, number)
    try:
        shard, facts = read_shard(path)
    except FileNotFoundError:
        return Check(kind, number, "missing", f"there is no '{path}'")
    except ValueError as error:
        return Check(kind, number, "damaged", str(error))
    if (facts.kind, facts.shard) != (kind, number):
        return Check(kind, number, "damaged", f"'{path}' holds {facts.kind} {facts.shard}")
    found = digests(shard)
    if shard_hash(found) != facts.hash or found != dict(facts.digests):
        return Check(kind, number, "damaged", f"'{path}' was written with other {_differing(found, facts.digests)}")
    return _compare(manifest, job, facts)


def _compare(manifest: Manifest, job: ShardJob, facts: ShardFacts) -> Check:
    """Compare a shard that is whole with its recipe and with what is recorded."""
    kind, number = job.recipe.kind, job.shard
    if facts.recipe != job.recipe.hash:
        reason = f"it was made of another manifest or policy: recipe {facts.recipe}, here {job.recipe.hash}"
        return Check(kind, number, "different", reason)
    recorded = manifest.recorded(kind, number)
    if recorded is None:
        return Check(kind, number, "unrecorded")
    if recorded == facts.hash:
        return Check(kind, number, "equal")
    return Check(kind, number, "different", _why(manifest, facts, recorded))


def _why(manifest: Manifest, facts: ShardFacts, recorded: str) -> str:
    """Say why a shard of the same recipe has another hash than the manifest."""
    theirs = dict(manifest.made_with)
    hashes = f"hash {facts.hash}, recorded {recorded}"
    if facts.code != theirs.get("code"):
        here = "" if facts.code == atlas_code() else ", nor by the code that is installed here"
        return (
            f"{hashes}: it was not made by the code of the manifest{here}: code {facts.code}, recorded "
            f"{theirs.get('code', 'none')}"
        )
    return (
        f"{hashes}: the same code gives other bits on another machine, so a compiler, its flags, a C library or NumPy "
        f"differ: made with {facts.made_with}; recorded with {theirs.get('software', 'unknown software')}"
    )


def _differing(found: Digests, written: Digests) -> str:
    names = [name for name in sorted({*found, *written}) if found.get(name) != written.get(name)]
    return ", ".join(names) or "facts"
