"""What a benchmark consists of: its configuration, and the runs that follow from it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines import registry
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.suites import Suite, read_roles, write_roles
from bbrgym.benchmark.traces import scenarios_of
from bbrgym.checks import check_integer, check_keys, check_name, check_number, check_seeds, keep_integers
from bbrgym.envs.engine import (
    DEFAULT_ENGINE,
    EngineDescription,
    check_algorithms,
    describe_engine,
    hash_policies,
    identity_of,
)
from bbrgym.envs.flow_command import DataFrom, check_commands
from bbrgym.envs.scenario import DRIVER, Scenario, Transport
from bbrgym.envs.sharing import check_measured
from bbrgym.executors import ExecutorConfig, LocalConfig

FEW_SEEDS: Final = (1, 2, 3)
"""The seeds by default where a run takes seconds or minutes, in all engines but native: too few for a claim."""


@dataclass(frozen=True)
class Benchmark:
    """Competitors x scenarios x seeds; conf/benchmark/default.yaml explains the fields."""

    name: str
    scenarios: Mapping[str, Scenario]
    competitors: tuple[Competitor, ...]
    roles: tuple[int, ...] | None = None
    seeds: tuple[int, ...] = tuple(range(1, 11))
    engine: Mapping[str, Any] = field(default_factory=lambda: {"name": DEFAULT_ENGINE})
    step_ms: float = 100.0
    warmup: float = 0.25
    executor: ExecutorConfig = field(default_factory=LocalConfig)
    retries: int = 2
    tracking: Mapping[str, Any] | None = None
    suites: Mapping[str, Suite] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Benchmark:
        """Make a benchmark from plain types, with the fields of conf/benchmark/default.yaml.

        Raises:
            ValueError: a key is unknown, or a value is not valid.
        """
        check_keys("a benchmark", plain, [*(f.name for f in dataclasses.fields(cls)), "agent", "traces"])
        config = dict(plain)
        engine = config.get("engine") or DEFAULT_ENGINE
        config["engine"] = {"name": engine} if isinstance(engine, str) else {"name": DEFAULT_ENGINE, **engine}
        entries = "all" if config.get("competitors") is None else config["competitors"]
        entries = [entries] if isinstance(entries, str) else list(entries)
        if (agent := config.pop("agent", None)) is not None:
            entries.append({"name": "agent", "agent": agent})
        if not entries:
            raise ValueError("a benchmark needs competitors: benchmark.competitors=[bbr,cubic], or all")
        config["competitors"] = tuple(find_competitors(entries, describe_engine(**config["engine"])))
        if config.get("roles", "all") == "all" and isinstance(config.get("scenarios"), Mapping):
            for name, value in config["scenarios"].items():
                _check_driven(name, value)
        config["roles"] = read_roles(config.get("roles"))
        config["suites"], own = _read_suites(config.get("suites") or {})  # which have roles of their own
        if own:
            config["scenarios"] = {**(config.get("scenarios") or {}), **own}
        if (traces := config.pop("traces", None)) is not None:
            config["scenarios"] = {**(config.get("scenarios") or {}), **scenarios_of(traces)}
        if not isinstance(config.get("scenarios"), Mapping) or not config["scenarios"]:
            raise ValueError(
                "a benchmark needs scenarios: choose an experiment, for example experiment=rtt_fairness, or set "
                "benchmark.scenarios"
            )
        config["scenarios"] = {
            str(name): value if isinstance(value, Scenario) else _scenario(name, value)
            for name, value in config["scenarios"].items()
        }
        if config.get("seeds") is None:
            config["seeds"] = cls.seeds if config["engine"]["name"] == DEFAULT_ENGINE else FEW_SEEDS
        config["seeds"] = tuple(check_seeds(config["seeds"]))
        config["executor"] = ExecutorConfig.of(config.get("executor"))
        if describe_engine(**config["engine"]).is_real_time and config["executor"].workers is None:
            config["executor"] = dataclasses.replace(config["executor"], workers=1)
        config.setdefault("name", "benchmark")
        benchmark = cls(**config)
        benchmark._check()
        return benchmark

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, from which `from_dict` makes an equal benchmark."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["scenarios"] = {name: scenario.to_dict() for name, scenario in self.scenarios.items()}
        plain["competitors"] = [
            {"name": c.name, "parameters": dict(c.parameters)}
            | ({"algorithm": c.algorithm} if c.agent is None else {"agent": str(c.agent)})
            | ({} if c.policy is None else {"policy": c.policy})
            | ({} if c.file is None else {"file": c.file})
            | ({} if not c.client else {"server": c.server, "client": c.client, "data_from": c.data_from})
            | ({} if c.transport == "ours" else {"transport": c.transport})
            for c in self.competitors
        ]
        plain |= {"roles": write_roles(self.roles), "seeds": list(self.seeds)}
        plain["suites"] = {name: suite.to_dict() for name, suite in self.suites.items()}
        plain["engine"] = dict(self.engine)
        plain["executor"] = self.executor.to_dict()
        plain["tracking"] = None if self.tracking is None else dict(self.tracking)
        return plain

    def runs(self) -> list[Run]:
        """Return every run, ordered by seed first, so that an interrupted benchmark has equal seeds of all competitors.

        Raises:
            FileNotFoundError, ValueError: an agent cannot be loaded.
        """
        agents = {competitor.name: competitor.load() for competitor in self.competitors}
        code, options = self.code_hash(), dict(describe_engine(**self.engine).options)
        of_seed = [
            self._runs_of(scenario_name, competitor, agent=agents.get(competitor.name), code=code, options=options)
            for scenario_name in self.scenarios
            for competitor in self._take_part_in(scenario_name)
        ]
        return [run_of(seed) for seed in self.seeds for run_of in of_seed]

    @functools.cached_property
    def _suite_of(self) -> dict[str, Suite]:
        """The suite of each scenario that belongs to one."""
        return {name: suite for suite in self.suites.values() for name in suite.scenarios}

    def _roles_in(self, scenario_name: str) -> tuple[int, ...] | None:
        suite = self._suite_of.get(scenario_name)
        return self.roles if suite is None else suite.roles

    def _take_part_in(self, scenario_name: str) -> list[Competitor]:
        """Return the competitors, and the controllers that a suite compares them with."""
        suite = self._suite_of.get(scenario_name)
        names = {competitor.name for competitor in self.competitors}
        references = () if suite is None else suite.references
        return [*self.competitors, *(Competitor(name, name) for name in references if name not in names)]

    @functools.cached_property
    def _is_real_time(self) -> bool:
        return describe_engine(**self.engine).is_real_time

    def cost_s(self, run: Run) -> float:
        """Return about how long a run takes: its packets and rows, at the pace of its engine on one core."""
        if self._is_real_time:
            return run.scenario.duration_s
        per_run_s, per_packet_s, per_row_s = _COSTS.get(self.engine["name"], _COSTS["ns3"])
        scenario = run.scenario
        packets = scenario.rate_mbps * 1e6 / 8 / scenario.packet_bytes * scenario.duration_s
        rows = scenario.duration_s * 1e3 / run.step_ms * len(scenario.flows)
        return per_run_s + per_packet_s * packets + per_row_s * rows

    def code_hash(self) -> str:
        """Return the hash of the code that decides the numbers."""
        return code_hash(self.engine)

    def _runs_of(
        self, scenario_name: str, competitor: Competitor, agent: Agent | None, code: str, options: Mapping[str, Any]
    ) -> Callable[[int], Run]:
        """Return what makes the run of a seed; what does not depend on the seed is computed once."""
        scenario = competitor.takes(self.scenarios[scenario_name], self._roles_in(scenario_name))
        if agent is not None:
            scenario = agent.spec.action.on(scenario)
        # An agent decides as often as in training, whatever the interval of the others' rows is.
        step_ms = float(self.step_ms if agent is None else agent.spec.interval_ms(scenario))
        agent_hash = None if agent is None else agent.content_hash
        policy_hashes = hash_policies(scenario)
        identity = {
            "scenario": identity_of(scenario),
            "agent": agent_hash,
            "engine": self.engine["name"],
            "options": options,
            "step_ms": step_ms,
            "warmup": float(self.warmup),
            "code": code,
        }

        def run_of(seed: int) -> Run:
            key = hashlib.sha256(json.dumps(identity | {"seed": seed}, sort_keys=True).encode()).hexdigest()[:20]
            return Run(
                key=key,
                scenario_name=scenario_name,
                competitor=competitor.name,
                seed=seed,
                scenario=scenario,
                step_ms=step_ms,
                agent=competitor.agent,
                agent_hash=agent_hash,
                policy_hashes=policy_hashes,
            )

        return run_of

    def _check(self) -> None:
        names = [competitor.name for competitor in self.competitors]
        if repeated := [name for name in names if names.count(name) > 1]:
            own = f"{{name: {repeated[0]}-2, algorithm: …}}"
            raise ValueError(f"two competitors are called {repeated[0]!r}: each must have a name of its own, as {own}")
        engine = describe_engine(**self.engine)
        called: dict[str, str] = {}
        for name, scenario in self.scenarios.items():
            roles = self._roles_in(name)
            for role in roles or ():
                check_integer(f"each of roles in scenario {name!r}", role, at_least=0, below=len(scenario.flows))
            for competitor in self._take_part_in(name):
                run = f"{name}/{competitor.name}"
                if called.setdefault(run, name) != name:
                    raise ValueError(
                        f"runs of scenarios {called[run]!r} and {name!r} are both called {run!r}: rename one"
                    )
                check_algorithms(competitor.takes(scenario, roles), engine)
        for name, suite in self.suites.items():
            for scenario_name in suite.scenarios:
                check_name(f"scenario of suite {name!r}", scenario_name, list(self.scenarios))
            for competitor in self.competitors:
                if competitor.name in suite.references and competitor != Competitor(competitor.name, competitor.name):
                    raise ValueError(
                        f"suite {name!r} compares with {competitor.name!r}: no other competitor may be called so"
                    )
        check_number("step_ms", self.step_ms, above=0)
        keep_integers(self, "retries", at_least=0)
        check_number("warmup", self.warmup, at_least=0, below=1)
        for name, scenario in self.scenarios.items():
            try:
                check_measured(scenario, self.warmup)
            except ValueError as error:
                raise ValueError(f"scenario {name!r}: {error}") from None


@dataclass(frozen=True)
class Run:
    """One run of a benchmark. Runs have equal keys if and only if they have equal numbers."""

    key: str
    scenario_name: str
    competitor: str
    seed: int
    scenario: Scenario
    step_ms: float
    agent: Path | None
    agent_hash: str | None
    policy_hashes: Mapping[int, str]

    @property
    def name(self) -> str:
        """What a ledger calls it."""
        return f"{self.scenario_name}/{self.competitor}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of all that decides what is measured of it, for a ledger."""
        return f"{self.key}-{metrics_hash()}"

    def names(self) -> dict[str, Any]:
        """Return what identifies the run in benchmark.json, failures and results."""
        return {"scenario": self.scenario_name, "competitor": self.competitor, "seed": self.seed, "key": self.key}


@dataclass(frozen=True)
class Competitor:
    """What a benchmark compares: a controller by its name, or a trained agent by the path of its run.

    Attributes:
        name: its name in the results.
        algorithm: the controller of the flows that it drives; `agent` for an agent.
        parameters: the controller's parameters that differ from its defaults.
        agent: path of a trained run, for `bbrgym.agents.policy.load_agent`.
        policy: such a path for the algorithm `policy`; None is the shipped policy.
        file: for the algorithm `file`: the path of a controller in C.
        server: for the algorithm `command`, as of `Flow`; so are the next two.
        client: see `server`.
        data_from: see `server`.
        transport: of its flows.
    """

    name: str
    algorithm: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    agent: Path | None = None
    policy: str | None = None
    file: str | None = None
    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    data_from: DataFrom = "client"
    transport: Transport = "ours"

    @classmethod
    def from_dict(cls, plain: str | Mapping[str, Any]) -> Competitor:
        """Make a competitor of a name or the path of a C file, of {name, agent, parameters}, or of the other fields.

        Both mappings can have a transport. A C file competes by its name without the folder.

        Raises:
            ValueError: a key or a value is not valid.
        """
        entry: Mapping[str, Any] = {"algorithm": plain} if isinstance(plain, str) else plain
        if isinstance(plain, str) and plain.endswith(".c"):
            entry = {"name": Path(plain).name, "algorithm": registry.FILE, "file": plain}
        check_keys("a competitor", entry, [f.name for f in dataclasses.fields(cls)])
        agent, policy, file = entry.get("agent"), entry.get("policy"), entry.get("file")
        if (agent is None) == (entry.get("algorithm") is None):
            raise ValueError(f"a competitor must have either an algorithm or an agent (a path), got {dict(entry)!r}")
        algorithm = "agent" if agent is not None else str(entry["algorithm"])
        parameters = dict(entry.get("parameters") or {})
        registry.check_parameters(algorithm, parameters)
        if policy is not None and algorithm != "policy":
            raise ValueError(f"only a competitor with algorithm 'policy' can have a policy, got {dict(entry)!r}")
        if (file is not None) != (algorithm == registry.FILE):
            raise ValueError(f"a competitor has a file if and only if its algorithm is 'file', got {dict(entry)!r}")
        commands = {name: entry.get(name) or () for name in ("server", "client")}
        data_from = entry.get("data_from", cls.data_from)
        check_commands(algorithm, commands, data_from, size_bytes=1, ecn=None)  # which the scenario's flows decide
        return cls(
            name=str(entry.get("name") or algorithm),
            algorithm=algorithm,
            parameters=parameters,
            agent=None if agent is None else Path(agent).expanduser(),
            policy=None if policy is None else str(policy),
            file=None if file is None else str(file),
            **commands,
            data_from=data_from,
            transport=entry.get("transport", "ours"),
        )

    def load(self) -> Agent | None:
        """Return the trained agent; None for a controller."""
        return None if self.agent is None else load_agent(self.agent)

    def takes(self, scenario: Scenario, roles: Sequence[int] | None) -> Scenario:
        """Return the scenario with this competitor's algorithm on the flows `roles`, None for all flows."""
        driver = {name: getattr(self, name) for name in DRIVER}
        flows = tuple(
            dataclasses.replace(flow, **driver) if roles is None or index in roles else flow
            for index, flow in enumerate(scenario.flows)
        )
        return dataclasses.replace(scenario, flows=flows)


_COSTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "native": (0.02, 1e-6, 5e-6),
    "ns3": (0.5, 2e-5, 1e-4),
}
"""Seconds per run, packet and row on a core of 2024, by engine. `run_in_chunks` corrects them by what it measures."""

GROUPS: Final = ("all", "published", "stock")
"""Names of several competitors: see `find_competitors`."""


def find_competitors(entries: Iterable[str | Mapping[str, Any]], engine: EngineDescription) -> list[Competitor]:
    """Return the competitors of a list of queries and mappings.

    Args:
        entries: queries, and mappings for `Competitor.from_dict`. A query has names of controllers and groups,
            separated by ` + ` and ` - `, which are applied from left to right: `all - stock - policy`. The groups are
            `published` (the controllers that are not this project's own, `registry.OURS`), `stock` (what the engine
            brings with it, for example ns-3's own TCP) and `all` (both, `policy` and `bbr-backlog`).
        engine: the engine that they run in.

    Raises:
        ValueError: a name is unknown, or a mapping is not valid.
    """
    found: list[Competitor] = []
    for entry in entries:
        if not isinstance(entry, str) or not (entry in GROUPS or " " in entry) or _is_c_file(entry):
            found.append(Competitor.from_dict(entry))
            continue
        words = entry.split()
        if paths := [word for word in words if word.endswith(".c")]:
            raise ValueError(f"the path of a C file must be an entry of its own, as [bbr, {paths[0]}], got {entry!r}")
        if len(words) % 2 == 0 or not {"+", "-"}.issuperset(words[1::2]):
            raise ValueError(f"a query of competitors must be like 'all - stock + bbr-stock', got {entry!r}")
        names: dict[str, None] = {}
        for sign, word in zip(["+", *words[1::2]], words[::2], strict=True):
            members = dict.fromkeys(_members(word, engine))
            names = names | members if sign == "+" else {name: None for name in names if name not in members}
        found += [Competitor(name, name) for name in names]
    return found


def _is_c_file(entry: str) -> bool:
    """Return whether a text is the path of a C file, which may have blanks, and not a query."""
    return entry.endswith(".c") and (Path(entry).expanduser().is_file() or not {"+", "-"} & {*entry.split()})


def _members(name: str, engine: EngineDescription) -> list[str]:
    # The controller of agents without an agent is BBR with fixed gains: in no group.
    controllers = [one for one in registry.controllers() if one != "agent" and one not in registry.PROGRAMS]
    groups = {
        "all": [*controllers, *engine.comparators],
        "published": [controller for controller in controllers if controller not in registry.OURS],
        "stock": list(engine.comparators),
    }
    check_name("competitor", name, [*GROUPS, *registry.controllers(), *registry.COMPARATORS])
    return groups.get(name, [name])


def _read_suites(plain: Mapping[str, Any]) -> tuple[dict[str, Suite], dict[str, Any]]:
    """Return the suites, and the scenarios that they bring along."""
    suites: dict[str, Suite] = {}
    scenarios: dict[str, Any] = {}
    for name, of_suite in plain.items():
        suites[str(name)], own = Suite.from_dict(str(name), of_suite)
        scenarios |= own
    return suites, scenarios


def _check_driven(name: str, scenario: Any) -> None:
    """Check that no flow is to keep an algorithm, where competitors drive all flows."""
    flows = scenario.get("flows") if isinstance(scenario, Mapping) else None
    given = [flow.get("algorithm") for flow in flows or () if isinstance(flow, Mapping)]
    if None in given and (kept := [one for one in given if one is not None]):
        theirs = [place for place, one in enumerate(given) if one is None]
        raise ValueError(
            f"a flow of scenario {name!r} has the algorithm {kept[0]}, but competitors drive all flows: "
            f"benchmark.roles={theirs} says which ones they drive, and benchmark.roles=null that they drive all"
        )


def _scenario(name: str, plain: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.from_dict(plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scenario {name!r}: {error}") from error
