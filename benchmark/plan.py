"""What a benchmark consists of: its configuration, and the runs that follow from it."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bbrgym.benchmark.metrics
import bbrgym.envs.trace
from bbrgym.baselines import registry
from bbrgym.envs.engine import describe_engine, read_policies
from bbrgym.envs.scenario import Scenario

if TYPE_CHECKING:
    from bbrgym.agents.policy import Agent


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark is made of; conf/benchmark/default.yaml explains the fields."""

    name: str
    scenarios: Mapping[str, Scenario]
    competitors: tuple[Competitor, ...]
    roles: tuple[int, ...] | None = None
    seeds: tuple[int, ...] = (1, 2, 3)
    engine: Mapping[str, Any] = field(default_factory=lambda: {"name": "ns3"})
    step_ms: float = 100.0
    warmup: float = 0.25
    processes: int | None = None
    tracking: Mapping[str, Any] | None = None

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Benchmark:
        """From a plain mapping; a bad or unknown entry is refused by name.

        Raises:
            ValueError: naming the bad value and the good ones.
        """
        try:
            return cls._from_dict(plain)
        except TypeError as error:
            raise ValueError(f"a benchmark has a value of a wrong kind: {error}") from error

    @classmethod
    def _from_dict(cls, plain: Mapping[str, Any]) -> Benchmark:
        config = dict(plain)
        fields = [f.name for f in dataclasses.fields(cls)]
        _check_keys("a benchmark", config, [*fields, "agent"])
        engine = config.get("engine") or "ns3"
        engine = {"name": engine} if isinstance(engine, str) else dict(engine)
        entries = config.get("competitors") or "all"
        entries = [entries] if isinstance(entries, str) else list(entries)
        if (agent := config.pop("agent", None)) is not None:
            entries.append({"name": "agent", "agent": agent})
        if not (scenarios := config.get("scenarios")):
            raise ValueError(
                "a benchmark needs scenarios: choose an experiment (experiment=rtt_fairness, say) or name them in "
                "benchmark.scenarios"
            )
        roles = config.get("roles")
        config |= {
            "scenarios": {str(name): _scenario(name, scenario) for name, scenario in scenarios.items()},
            "competitors": tuple(_competitors(entries, engine)),
            "roles": None if roles in (None, "all") else tuple(roles),
            "engine": engine,
        }
        config["seeds"] = tuple(config.get("seeds", cls.seeds))
        benchmark = cls(**config)
        benchmark._check()
        return benchmark

    def to_dict(self) -> dict[str, Any]:
        """Plain types only; `from_dict` makes it again."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["scenarios"] = {name: scenario.to_dict() for name, scenario in self.scenarios.items()}
        plain["competitors"] = [
            {"name": c.name, "parameters": dict(c.parameters)}
            | ({"algorithm": c.algorithm} if c.agent is None else {"agent": str(c.agent)})
            | ({} if c.policy is None else {"policy": c.policy})
            for c in self.competitors
        ]
        plain |= {"roles": "all" if self.roles is None else list(self.roles), "seeds": list(self.seeds)}
        plain["engine"] = dict(self.engine)
        plain["tracking"] = None if self.tracking is None else dict(self.tracking)
        return plain

    def runs(self) -> list[Run]:
        """Every run of it: seeds outermost, so that an interrupted benchmark has the same seeds of all competitors.

        Raises:
            FileNotFoundError, ValueError: an agent cannot be loaded.
        """
        agents = {competitor.name: competitor.load() for competitor in self.competitors}
        code = code_hash(self.engine["name"])
        return [
            self._run(seed, scenario_name, competitor, agents[competitor.name], code)
            for seed in self.seeds
            for scenario_name in self.scenarios
            for competitor in self.competitors
        ]

    def _run(self, seed: int, scenario_name: str, competitor: Competitor, agent: Agent | None, code: str) -> Run:
        scenario = competitor.takes(self.scenarios[scenario_name], self.roles)
        # An agent decides as often as it did in training, whatever the others' rows are.
        step_ms = float(self.step_ms if agent is None else agent.spec.interval_ms(scenario))
        agent_hash = None if agent is None else agent.content_hash
        policy_hashes = hash_policies(scenario)
        plain = scenario.to_dict()
        for index, policy_hash in policy_hashes.items():
            plain["flows"][index]["policy"] = policy_hash
        identity = {
            "scenario": plain,
            "agent": agent_hash,
            "seed": seed,
            "engine": self.engine["name"],
            "options": dict(describe_engine(**self.engine).options),
            "step_ms": step_ms,
            "warmup": float(self.warmup),
            "code": code,
        }
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]
        return Run(
            key, scenario_name, competitor.name, seed, scenario, step_ms, competitor.agent, agent_hash, policy_hashes
        )

    def _check(self) -> None:
        names = [competitor.name for competitor in self.competitors]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two competitors are called {name!r}: give each a name of its own")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds={list(self.seeds)!r} is not possible: give one seed or more, all different")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise ValueError(f"seeds has {seed!r}: a seed must be an integer, at least 0")
        for name, scenario in self.scenarios.items():
            for role in self.roles or ():
                if not isinstance(role, int) or not 0 <= role < len(scenario.flows):
                    raise ValueError(
                        f"roles has {role!r}, but the flows of scenario {name!r} are 0 to {len(scenario.flows) - 1}"
                    )
        if not 0 < self.step_ms < math.inf:
            raise ValueError(f"step_ms={self.step_ms!r} is not possible: step_ms must be above 0")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup={self.warmup!r} is not possible: warmup is a part of the duration, in [0, 1)")
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"processes={self.processes!r} is not possible: processes must be at least 1, or null")


@dataclass(frozen=True)
class Run:
    """One run of a benchmark. Its `key` is equal if and only if its numbers are."""

    key: str
    scenario_name: str
    competitor: str
    seed: int
    scenario: Scenario
    step_ms: float
    agent: Path | None
    agent_hash: str | None
    policy_hashes: Mapping[int, str]

    def names(self) -> dict[str, Any]:
        """Which run it is, as benchmark.json, failures and results say it."""
        return {"scenario": self.scenario_name, "competitor": self.competitor, "seed": self.seed, "key": self.key}


@dataclass(frozen=True)
class Competitor:
    """What is compared: a controller by its name, or a trained agent by the path of its run.

    Attributes:
        name: how it is called in the results.
        algorithm: the controller of the flows that it takes; `agent` for an agent.
        parameters: the controller's parameters that differ from its defaults.
        agent: path of a trained run, for `bbrgym.agents.policy.load_agent`.
        policy: such a path for the algorithm `policy`; None is the reference policy.
    """

    name: str
    algorithm: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    agent: Path | None = None
    policy: str | None = None

    @classmethod
    def from_dict(cls, plain: str | Mapping[str, Any]) -> Competitor:
        """From {name, algorithm, parameters, policy} or {name, agent, parameters}; a string is a controller."""
        entry: dict[str, Any] = {"algorithm": plain} if isinstance(plain, str) else dict(plain)
        _check_keys("a competitor", entry, [f.name for f in dataclasses.fields(cls)])
        agent = entry.get("agent")
        if (agent is None) == (entry.get("algorithm") is None):
            raise ValueError(f"competitor {entry!r} is not possible: give either its algorithm or an agent's path")
        algorithm = "agent" if agent is not None else str(entry["algorithm"])
        parameters = dict(entry.get("parameters") or {})
        registry.check_parameters(algorithm, parameters)
        name = str(entry.get("name") or ("agent" if agent is not None else algorithm))
        policy = entry.get("policy")
        if policy is not None and algorithm != "policy":
            raise ValueError(f"competitor {entry!r} is not possible: only the algorithm 'policy' has a policy")
        return cls(
            name,
            algorithm,
            parameters,
            None if agent is None else Path(agent).expanduser(),
            None if policy is None else str(policy),
        )

    def load(self) -> Agent | None:
        """The trained agent; None for a controller."""
        if self.agent is None:
            return None
        from bbrgym.agents.policy import load_agent

        return load_agent(self.agent)

    def takes(self, scenario: Scenario, roles: Sequence[int] | None) -> Scenario:
        """The scenario with this competitor's algorithm on the flows `roles`, None for all of them."""
        flows = tuple(
            dataclasses.replace(flow, algorithm=self.algorithm, parameters=self.parameters, policy=self.policy)
            if roles is None or index in roles
            else flow
            for index, flow in enumerate(scenario.flows)
        )
        return dataclasses.replace(scenario, flows=flows)


def hash_policies(scenario: Scenario) -> dict[int, str]:
    """SHA-256 of what decides the gains of each flow of algorithm `policy`, by its index.

    Raises:
        FileNotFoundError, ValueError: a policy cannot be loaded.
    """
    return {index: hashlib.sha256(policy).hexdigest() for index, policy in read_policies(scenario).items()}


def code_hash(engine: str) -> str:
    """Identifies the code that decides a run's numbers in an engine.

    It is of the package's version, the compiled extensions that the engine uses, and the versions that it names.
    """
    digest = hashlib.sha256(bbrgym.__version__.encode())
    description = describe_engine(engine)
    for module in ("bbrgym._controllers", *description.extensions):
        specification = importlib.util.find_spec(module)
        if specification is not None and specification.origin is not None:
            digest.update(Path(specification.origin).read_bytes())
    for distribution in description.distributions:
        digest.update(str(version_of(distribution)).encode())
    return digest.hexdigest()[:16]


def metrics_hash() -> str:
    """Identifies the code that makes a run's figures of its trace."""
    digest = hashlib.sha256()
    for module in (bbrgym.benchmark.metrics, bbrgym.envs.trace):
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()[:16]


def _competitors(entries: Iterable[str | Mapping[str, Any]], engine: Mapping[str, Any]) -> Iterable[Competitor]:
    for entry in entries:
        if entry == "all":
            # The agent's controller without an agent is BBR with fixed gains: no competitor unless it is asked for.
            yield from (Competitor(name, name) for name in registry.controllers() if name != "agent")
            yield from (Competitor(name, name) for name in describe_engine(**engine).comparators)
        else:
            yield Competitor.from_dict(entry)


def _scenario(name: str, plain: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.from_dict(plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scenario {name!r}: {error}") from error


def _check_keys(what: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{what} has no field {key!r}; known: {', '.join(known)}")


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
