"""Break the agent of a training, for its curriculum (`bbrgym.agents.curriculum`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bbrgym.agents.curriculum import Breaks, Broken, Quest
from bbrgym.agents.policy import Agent
from bbrgym.benchmark.breaking.find import find
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.space import Space
from bbrgym.benchmark.candidate import Candidate


class Breaker(Breaks):
    """Searches with `bbrgym.benchmark.breaking.find`, in this process."""

    def check(self, quest: Quest) -> None:
        """See `Breaks`."""
        _space(quest)

    def regrets(self, agent: Agent, known: Sequence[Broken]) -> list[float]:
        """See `Breaks`."""
        with _judging(agent, 1.0) as judge:
            own = judge.own([Trial(path.scenario, path.seed) for path in known])
        return [path.best - float(facts.get("fair_power", 0.0)) for path, facts in zip(known, own, strict=True)]

    def find(self, agent: Agent, quest: Quest, seed: int) -> list[Broken]:
        """See `Breaks`.

        Raises:
            KeyboardInterrupt: the search was interrupted.
        """
        with _judging(agent, quest.regret) as judge:
            found = find(judge, _space(quest), seed, candidates=quest.candidates)
            if not found.is_complete:
                raise KeyboardInterrupt
            entries = [entry for _, entry in found.failures]
            own = judge.own([entry.trial for entry in entries])
        return [
            Broken(
                scenario=entry.trial.scenario,
                seed=entry.trial.seed,
                best=float(facts["fair_power"]) + entry.verdict.value,
                regret=entry.verdict.value,
            )
            for entry, facts in zip(entries, own, strict=True)
        ]


@contextmanager
def _judging(agent: Agent, regret: float) -> Iterator[Judge]:
    with TemporaryDirectory(prefix="bbrgym-curriculum-") as folder:
        path = Path(folder) / "agent"
        agent.save(path)
        yield Judge(Candidate.of(str(path)), {"regret": regret})


def _space(quest: Quest) -> Space:
    """Return the box of paths on which a training can be: with its duration, and no more flows than it has.

    Raises:
        ValueError: there are none, or a line of the box is a bad one.
    """
    changes: dict[str, Any] = {}
    if quest.duration_s is not None:
        changes["duration_s"] = quest.duration_s
    usual = Space.read()
    least, most = usual.ranges["flows"]
    changes["flows"] = [int(least), min(int(most), quest.agents)]
    if quest.flows == quest.agents:  # no room for a rival
        changes["kinds"] = [kind for kind in usual.choices["kinds"] if kind != "rival"]
    space = Space.read(changes=changes | dict(quest.space))
    if space.ranges["flows"][1] > quest.agents:
        raise ValueError(
            f"curriculum.space.flows must be at most {quest.agents}, the agent flows of the scenario, got "
            f"{space.ranges['flows'][1]:g}"
        )
    if "rival" in space.kinds and quest.flows == quest.agents:
        raise ValueError("curriculum.space.kinds must not have rival: the scenario has agent flows only")
    return space
