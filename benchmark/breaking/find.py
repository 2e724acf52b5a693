"""Search a box of paths for those on which a candidate is broken, in different ways.

First draws, of each kind of path in turn. Then a third of each generation is drawn, a third are mutants of what the
archive holds, and a third is asked of CMA-ES, which follows the numbers of one entry. The archive has the worst path
for each pair of a kind of path and a property (MAP-Elites, Mouret and Clune 2015).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.properties import Verdict
from bbrgym.benchmark.breaking.shrink import NEEDED, count_broken
from bbrgym.benchmark.breaking.space import Genome, Space
from bbrgym.envs.scenario import Scenario
from bbrgym.extras import optional

GENERATION: Final = 24
"""How many paths are judged at a time, whatever the number of workers, so that these do not decide what is found."""

_DRAWN_FIRST: Final = 4
"""So many generations are draws alone: each kind about four times."""

_ROUNDS: Final = 5
"""How many generations CMA-ES follows an entry for."""

_DRAWS: Final = 20
"""How often a path of a kind alone is drawn, if the numbers do not fit together."""

_CRASHES: Final = 12
"""A candidate that crashes on so many of its first paths, all of them, crashes always."""


@dataclass(frozen=True)
class Entry:
    """The worst path of a kind for a property.

    Attributes:
        genome: of the path.
        trial: the path.
        verdict: how it came out.
        number: how many paths had been judged when it was found.
    """

    genome: Genome
    trial: Trial
    verdict: Verdict
    number: int


@dataclass
class Found:
    """What a search has found.

    Attributes:
        archive: {(kind of path, property): the worst}.
        candidates: how many paths were judged.
        first: how many had been when the first failure was found; None without one.
        is_complete: whether it was not interrupted.
    """

    archive: dict[tuple[str, str], Entry] = field(default_factory=dict)
    candidates: int = 0
    first: int | None = None
    is_complete: bool = True

    @property
    def failures(self) -> list[tuple[str, Entry]]:
        """The entries that are broken, as (property, entry), the worst first."""
        broken = [(name, entry) for (_, name), entry in self.archive.items() if entry.verdict.is_broken]
        return sorted(broken, key=lambda one: -one[1].verdict.severity)


def find(
    judge: Judge,
    space: Space,
    seed: int,
    *,
    candidates: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
    evolves: bool = True,
    tell: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Search until the budget is spent. Ctrl-C ends it, and what was found is returned.

    Args:
        judge: of the candidate.
        space: where to look.
        seed: decides everything that is drawn.
        candidates: how many paths are judged; None for no limit.
        is_over: whether there is no time left; it is asked after each generation.
        evolves: False for draws alone.
        tell: is called after each generation.

    Raises:
        ValueError: the candidate crashes on every path.
    """
    found = Found()
    search = _Search(space, np.random.default_rng([seed, 0])) if evolves else None
    drawer = np.random.default_rng([seed, 1])
    generation = 0
    always_crashes = "crash" in judge.limits
    try:
        while (candidates is None or found.candidates < candidates) and not is_over():
            count = GENERATION if candidates is None else min(GENERATION, candidates - found.candidates)
            genomes: list[Genome] = []
            if search is not None and generation >= _DRAWN_FIRST:
                genomes = search.propose(found.archive, count * 2 // 3)
            while len(genomes) < count:
                place = found.candidates + len(genomes)
                genomes.append(space.draw(space.kinds[place % len(space.kinds)], drawer))
            batch = []
            for genome in genomes:
                complete, scenario = _possible(space, genome, drawer)
                batch.append((complete, Trial(scenario, int(drawer.integers(2**31 - 8)))))
            verdicts = judge.judge([trial for _, trial in batch])
            _keep(found, judge, batch, verdicts)
            if search is not None:
                search.learn(verdicts)
            always_crashes = always_crashes and all(of["crash"].is_broken for of in verdicts)
            if found.candidates >= _CRASHES and always_crashes:
                raise ValueError(_always_crashes(judge, batch[0][1]))
            generation += 1
            tell(found)
    except KeyboardInterrupt:
        found.is_complete = False
    return found


def _always_crashes(judge: Judge, trial: Trial) -> str:
    cause = judge.own([trial])[0].get("error", "it fails")
    return f"'{judge.candidate.what}' fails on every path, so there is nothing to search: {cause}"


def _possible(space: Space, genome: Genome, rng: np.random.Generator) -> tuple[Genome, Scenario]:
    """Return a genome's path; if its parts do not fit together, one of its first kind alone.

    Its numbers are drawn, again and again if need be, and at last they are the least: what is drawn ends no search.
    """
    first = genome.kinds[0]
    for tried in (genome, *[Genome(space.alone(first), {})] * _DRAWS):
        try:
            return space.scenario(tried, rng)
        except ValueError:
            continue
    return space.least(first)


def _keep(
    found: Found, judge: Judge, batch: Sequence[tuple[Genome, Trial]], verdicts: Sequence[dict[str, Verdict]]
) -> None:
    """Put into the archive what is worse than what it holds; a failure counts if it holds with other seeds, too."""
    number = found.candidates
    found.candidates += len(batch)
    worst: dict[tuple[str, str], Entry] = {}
    for place, ((genome, trial), of_trial) in enumerate(zip(batch, verdicts, strict=True), start=number + 1):
        for name, verdict in of_trial.items():
            if verdict.severity > 0 and not math.isnan(verdict.severity):
                key = genome.kinds[0], name
                entry = Entry(genome, trial, verdict, place)
                if _rank(entry) > max(_rank(found.archive.get(key)), _rank(worst.get(key))):
                    worst[key] = entry
    broken: dict[Trial, set[str]] = {}
    for (_, name), entry in worst.items():
        if entry.verdict.is_broken:
            broken.setdefault(entry.trial, set()).add(name)
    counts = dict(zip(broken, count_broken(judge, list(broken), list(broken.values())), strict=True))
    for key, entry in worst.items():
        if not entry.verdict.is_broken:
            continue
        if counts[entry.trial][key[1]] < NEEDED:
            verdict = dataclasses.replace(entry.verdict, is_broken=False, severity=0.9)
            worst[key] = dataclasses.replace(entry, verdict=verdict)
        elif found.first is None or entry.number < found.first:
            found.first = entry.number
    for key, entry in worst.items():
        if _rank(entry) > _rank(found.archive.get(key)):
            found.archive[key] = entry


def _rank(entry: Entry | None) -> tuple[bool, float]:
    return (False, 0.0) if entry is None else (entry.verdict.is_broken, entry.verdict.severity)


class _Search:
    """Proposes paths near those of an archive."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._follower: _Follower | None = None
        self._asked = 0
        self._followed: list[tuple[str, str]] = []

    def propose(self, archive: dict[tuple[str, str], Entry], count: int) -> list[Genome]:
        """Return paths, the first ones by CMA-ES."""
        if not archive:
            return []
        if self._follower is None:
            key = self._choose(archive)
            self._followed.append(key)
            self._follower = _Follower(archive[key].genome, key[1], self._rng)
        genomes = self._follower.ask(max(4, count // 2))[:count]
        self._asked = len(genomes)
        keys = sorted(archive)
        while len(genomes) < count:
            held = archive[self._choose(archive) if self._rng.random() < 0.7 else keys[self._rng.integers(len(keys))]]
            genomes.append(self._space.mutate(held.genome, self._rng))
        return genomes

    def learn(self, verdicts: Sequence[dict[str, Verdict]]) -> None:
        """Tell CMA-ES what came of its paths."""
        if self._follower is None or not self._asked:
            return
        self._follower.tell([of_trial[self._follower.name].severity for of_trial in verdicts[: self._asked]])
        self._asked = 0
        if self._follower.rounds >= _ROUNDS:
            self._follower = None

    def _choose(self, archive: dict[tuple[str, str], Entry]) -> tuple[str, str]:
        """Choose an entry: of those that are not broken yet, rather a bad one; of the others any."""
        keys = sorted(archive)
        weights = np.array(
            [
                (0.3 if archive[key].verdict.is_broken else archive[key].verdict.severity ** 2 + 1e-3)
                / (1 + self._followed.count(key))
                for key in keys
            ]
        )
        return keys[self._rng.choice(len(keys), p=weights / weights.sum())]


class _Follower:
    """CMA-ES over the numbers of one path (Hansen 2016, arXiv:1604.00772); its kinds stay."""

    def __init__(self, genome: Genome, name: str, rng: np.random.Generator) -> None:
        with optional("the search of bbrgym break"):
            import cma

        self.name = name
        self.rounds = 0
        self._kinds = genome.kinds
        self._names = sorted(genome.numbers)
        start = [genome.numbers[one] for one in self._names]
        if len(start) == 1:  # CMA-ES needs two dimensions
            self._names.append("")
            start.append(0.5)
        self._search = cma.CMAEvolutionStrategy(
            start,
            0.15,
            {
                "bounds": [0.0, 1.0],
                "popsize": 8,
                "randn": lambda *shape: rng.standard_normal(shape),
                "seed": math.nan,  # leave NumPy's global generator alone
                "verbose": -9,
            },
        )
        self._asked: list[npt.NDArray[np.float64]] = []

    def ask(self, count: int) -> list[Genome]:
        self._asked = self._search.ask(count)
        return [
            Genome(self._kinds, {name: float(value) for name, value in zip(self._names, point, strict=True) if name})
            for point in self._asked
        ]

    def tell(self, severities: Sequence[float]) -> None:
        """Give the severities of what was asked, more of which is better here."""
        self.rounds += 1
        if len(severities) == len(self._asked) and len(severities) >= self._search.sp.weights.mu:
            self._search.tell(self._asked, [-min(each, 1e6) if each == each else 0.0 for each in severities])
