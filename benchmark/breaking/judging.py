"""Run a candidate on paths, and yardsticks where it looks bad; judge what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal

from bbrgym.benchmark.breaking.properties import ALONE, PROPERTIES, Verdict
from bbrgym.benchmark.breaking.space import OURS
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.confined import MEASURES, run_confined
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.run_facts import WARMUP, Facts
from bbrgym.benchmark.sandbox import ConfinedJob, Reply, trace_of
from bbrgym.benchmark.score import CONSTANT
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace
from bbrgym.executors import TaskExecutor

_CHUNK: Final = 6
"""How many runs are in a job at most, since a job has costs of its own. A run that fails costs the others of its job a
second run, so after one jobs have half as many, and after none twice as many."""

_SECONDS: Final = 1.0
_SECONDS_PER_PACKET: Final = 1.5e-6
"""How much processor time a run may take, and each packet that its link can carry: ten times what it needs.
Who sends a hundred times what the link carries takes longer."""

_SECONDS_MORE: Final = 0.3
"""How much a job may take for each run beside the slowest one."""


@dataclass(frozen=True)
class Trial:
    """A path with a seed; the candidate drives the flows that are `OURS`."""

    scenario: Scenario
    seed: int

    def driven_by(self, competitor: Competitor | str) -> Scenario:
        """Return the scenario with a competitor in the candidate's place; for `ALONE` with the other flows only."""
        if isinstance(competitor, str):
            rivals = tuple(flow for flow in self.scenario.flows if flow.algorithm != OURS)
            return dataclasses.replace(self.scenario, flows=rivals)
        return competitor.takes(self.scenario, self.scenario.agent_flows)


class Judge:
    """Judges a candidate.

    Args:
        candidate: what is judged.
        limits: {property: its limit}; only these are judged.
        executor: where runs are measured; None for this process.
    """

    def __init__(self, candidate: Candidate, limits: Mapping[str, float], executor: TaskExecutor | None = None) -> None:
        self.candidate = candidate
        self.limits = dict(limits)
        self._executor = executor
        self._known: dict[tuple[str, int, int], Facts] = {}
        self._chunk = _CHUNK
        self._missing: dict[str, None] = {}

    def only(self, name: str, limit: float | None = None) -> Judge:
        """Return a judge of one of the properties, or with another limit of it, which knows what this one does."""
        judge = Judge(self.candidate, {name: self.limits[name] if limit is None else limit}, self._executor)
        judge._known = self._known
        judge._missing = self._missing
        judge._chunk = self._chunk
        return judge

    @property
    def missing(self) -> list[str]:
        """What this system does not contain of the candidate, as far as it ran: one sentence each."""
        return list(self._missing)

    def trace(self, trial: Trial) -> Trace | None:
        """Return the candidate's run step by step; None if it fails."""
        job = self._job([trial], "trace")
        (reply,) = self._run([job])
        return trace_of(job, Reply(**reply))

    def own(self, trials: Sequence[Trial]) -> list[Facts]:
        """Return the facts of the candidate's runs."""
        found: list[Facts | None] = [None] * len(trials)
        chunk = self._chunk
        left = [list(range(place, min(place + chunk, len(trials)))) for place in range(0, len(trials), chunk)]
        self._chunk = min(2 * chunk, _CHUNK)
        while left:
            jobs = [self._job([trials[index] for index in places], "facts") for places in left]
            again: list[list[int]] = []
            for places, reply in zip(left, self._run(jobs), strict=True):
                self._missing.update(dict.fromkeys(reply["missing"]))
                if reply["error"] is None:
                    for index, facts in zip(places, reply["results"], strict=True):
                        found[index] = facts
                elif reply["is_refused"]:
                    raise ValueError(reply["error"])
                elif len(places) > 1:
                    self._chunk = max(chunk // 2, 1)
                    again += [[index] for index in places]
                else:
                    found[places[0]] = {"error": reply["error"]}
            left = again
        return [facts for facts in found if facts is not None]

    def others(self, trials: Sequence[Trial], competitors: Sequence[Competitor | str]) -> list[dict[str, Facts]]:
        """Return {name: facts} of yardsticks in the candidate's place; `ALONE` stands for the rival without it."""
        wanted = {one if isinstance(one, str) else one.name: one for one in competitors}
        todo = [
            (place, name)
            for place, trial in enumerate(trials)
            for name in wanted
            if (name, trial.scenario.digest, trial.seed) not in self._known
        ]
        jobs = [
            ConfinedJob(
                [trials[place].driven_by(wanted[name])], [trials[place].seed], WARMUP, measure="facts", seconds=600
            )
            for place, name in todo
        ]
        for (place, name), reply in zip(todo, self._run(jobs), strict=True):
            facts = {"error": reply["error"]} if reply["error"] is not None else reply["results"][0]
            self._known[name, trials[place].scenario.digest, trials[place].seed] = facts
        return [{name: self._known[name, trial.scenario.digest, trial.seed] for name in wanted} for trial in trials]

    def judge(self, trials: Sequence[Trial]) -> list[dict[str, Verdict]]:
        """Return the verdict of each property on each path.

        The yardsticks of a property run only where it could be above its limit.
        """
        found: list[dict[str, Verdict]] = []
        facts = self.own(trials)
        suspicions = [
            {name: PROPERTIES[name].suspicion(trial.scenario, own) for name in self.limits}
            for trial, own in zip(trials, facts, strict=True)
        ]
        needed: dict[tuple[str, ...], list[int]] = {}
        for place, suspicion in enumerate(suspicions):
            names = {
                other
                for name, most in suspicion.items()
                if most > self.limits[name]
                for other in PROPERTIES[name].others
            }
            if names:
                needed.setdefault(tuple(sorted(names)), []).append(place)
        others: list[dict[str, Facts]] = [{} for _ in trials]
        for of_names, places in needed.items():
            wanted = [_yardstick(name) for name in of_names]
            for place, measured in zip(places, self.others([trials[p] for p in places], wanted), strict=True):
                others[place] = measured
        for trial, own, suspicion, measured in zip(trials, facts, suspicions, others, strict=True):
            verdicts = {}
            for name, limit in self.limits.items():
                if suspicion[name] > limit:
                    verdicts[name] = PROPERTIES[name].judge(trial.scenario, own, measured, limit)
                else:
                    severity = min(suspicion[name] / limit, 0.9) if limit else 0.0
                    verdicts[name] = Verdict(suspicion[name], is_broken=False, severity=0.9 * severity)
            found.append(verdicts)
        return found

    def _job(self, trials: Sequence[Trial], measure: Literal["facts", "trace"]) -> ConfinedJob:
        """Return the candidate's runs."""
        return ConfinedJob(
            scenarios=[trial.driven_by(self.candidate.competitor) for trial in trials],
            seeds=[trial.seed for trial in trials],
            warmup=WARMUP,
            measure=measure,
            **self.candidate.in_job(_seconds_of(trials)),
        )

    def _run(self, jobs: Sequence[ConfinedJob]) -> list[dict[str, Any]]:
        if self._executor is None:
            return [measure_job(job.to_dict()) for job in jobs]
        futures: list[Future[Any]] = [self._executor.submit(measure_job, job.to_dict()) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _seconds_of(trials: Sequence[Trial]) -> float:
    """Return how much processor time these runs may take: what the slowest may, and a little for each of the others."""
    packets = (one.scenario.rate_mbps * 125 * one.scenario.duration_s for one in trials)
    return _SECONDS + _SECONDS_PER_PACKET * max(packets) + _SECONDS_MORE * (len(trials) - 1)


def measure_job(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply of a job: in this process for the project's own code, in a confined fork for any other."""
    if request["confinement"] != "none":
        return run_confined(request)
    scenarios = [Scenario.from_dict(plain) for plain in request["scenarios"]]
    results = MEASURES[request["measure"]](scenarios, request["seeds"], request["warmup"])
    return {"error": None, "is_refused": False, "missing": [], "results": results}


def _yardstick(name: str) -> Competitor | str:
    if name == ALONE:
        return ALONE
    return CONSTANT if name == CONSTANT.name else Competitor(name, name)
