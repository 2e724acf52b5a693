"""Compare the shipped policy with what is simple.

In scenarios of its training distribution that no training drew, all agent flows run the policy, a constant backlog, the
rule, the hand-made controller, a policy of few weights, a published algorithm, or a copy of the policy that a person
can read (`studies.reading`). The constant is the best of a grid in other scenarios of the same distribution; the oracle
is the best of the grid in each scenario.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.agents.policy import Agent, load_agent, scripted_agent
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import LINEAR_REFERENCE, REFERENCE, read_policy
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Job, Rows
from bbrgym.benchmark.score import CONSTANT as FIXED
from bbrgym.benchmark.statistics import bootstrap_interval, interquartile_mean
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.observation import Observation
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.trace import Policy, simulate
from bbrgym.files import read_object
from studies import page, reading
from studies.adopt import RECORD
from studies.reading import ALL, COPIES, LEAVES, LINEAR, SIZES, TREE, Copy, Values

COUNT: Final = 96
"""Scenarios that judge, and as many others that choose the constant."""
READ: Final = 48
"""Scenarios of those that choose whose decisions are copied."""
WARMUP: Final = 0.4
"""As in the search: fraction of an episode that is not measured."""
CHOOSES, JUDGES = 20_270_101, 20_270_102
FIRST, SECOND = "families", "families_v2"
ROLES: Final = {
    "chooses": (FIRST, CHOOSES),
    "judges": (FIRST, JUDGES),
    "chooses wider": (SECOND, 20_270_103),
    "judges wider": (SECOND, 20_270_104),
}
"""The distribution and the seed of each draw; seeds of trainings are small."""
PACKETS: Final = (1.4, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 20.0, 30.0, 50.0)
"""The grid of constant backlogs."""
PUBLISHED: Final = tuple(name for name in registry.controllers() if name not in registry.OURS)
BEHIND: Final = 0.05
"""Fair power that a controller may be behind the best of all in a scenario."""
STEP_MS: Final = 100.0
"""Time between decisions of the rule, as of the policy."""

POLICY, HAND_MADE, RULE, CONSTANT, ORACLE = "policy", "bbr-backlog", "rule", "constant", "oracle constant"
SMALL: Final = "linear"
"""The policy in `LINEAR_REFERENCE`: 16 weights, evolved in 80 s on plain paths alone."""
YARDSTICK: Final = "best of all yardsticks"
"""In each scenario the best of all but the policy, the oracle too."""
IN_PYTHON: Final = "policy in Python"
"""The policy as its copies drive."""
BY_HAND: Final[dict[str, dict[str, Any]]] = {HAND_MADE: {"algorithm": HAND_MADE}, RULE: {"driver": RULE}}
"""What was made by hand, as `FairPower.flow`."""
FAMILIES: Final = {
    "one flow": 1,
    "two to four flows": 4,
    "five to eight flows": 8,
}
"""Kinds of scenarios by the largest number of flows."""
UNEVEN: Final = "jitter, ACKs that leave together"
MOVING: Final = "paths that change"
CHANGING, LOSSY, CROWD, FAST, PLAIN = (
    "rates that change",
    "losses, policers",
    "five to sixteen flows",
    "fast links",
    "others",
)
WIDER: Final = (PLAIN, CROWD, FAST, UNEVEN, MOVING, CHANGING, LOSSY)
"""Kinds of scenarios of `families_v2`."""

Powers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FairPower:
    """The fair power of a scenario whose agent flows all run the same thing.

    Attributes:
        name: what the ledger calls it.
        scenario: what is simulated.
        flow: fields of `Flow` that replace those of agent flows; or the `driver` that steers them from outside.
        seed: of the run.
    """

    name: str
    scenario: Scenario
    flow: Mapping[str, Any]
    seed: int

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        # A policy's folder is another in each checkout.
        flow = {name: value for name, value in self.flow.items() if name != "policy"}
        decides = [self.scenario.to_dict(), flow, self.seed, WARMUP, *_decides(_runs(self.flow))]
        return code_hash("native", also=json.dumps(decides))


@dataclass(frozen=True)
class Reading:
    """The copies of the policy: what they explain of its decisions, and what a person reads of them."""

    name: str = "copies"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        scenarios = [scenario.to_dict() for scenario in draw(CHOOSES, READ)]
        return code_hash("native", also=json.dumps([scenarios, *_decides(ALL)]))


@dataclass(frozen=True)
class Behaviour:
    """What flows of the policy have when something happens (`reading.events`)."""

    name: str = "behaviour"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        decides = [[event.scenario.to_dict(), list(event.spans_s)] for event in reading.events().values()]
        return code_hash("native", also=json.dumps([decides, *_decides(POLICY)]))


def jobs() -> Sequence[Job]:
    """Return what is measured in both draws of scenarios."""
    constants = {constant(packets): fixed(packets) for packets in PACKETS}
    drivers = {name: {"driver": name} for name in (IN_PYTHON, *COPIES)}
    judged = {**constants, **competitors(), **drivers}
    wider = [*runs("chooses wider", constants), *runs("judges wider", {**constants, **competitors()})]
    return [*runs("chooses", constants), *runs("judges", judged), *wider, Reading(), Behaviour()]


def runs(role: str, flows: Mapping[str, Mapping[str, Any]]) -> list[FairPower]:
    """Return the runs of flows, by the names of what they run, in the scenarios of one of `ROLES`."""
    return [
        FairPower(f"{role}/{name}/{number}", scenario, flow, seed=number)
        for name, flow in flows.items()
        for number, scenario in enumerate(scenarios(role), start=1)
    ]


def scenarios(role: str) -> Sequence[Scenario]:
    """Return the scenarios of one of `ROLES`."""
    distribution, seed = ROLES[role]
    return draw(seed, COUNT, distribution)


def work(job: FairPower | Reading | Behaviour) -> Rows:
    """Simulate a scenario or what may happen, or read the copies."""
    if isinstance(job, FairPower):
        return [{"fair_power": fair_power(job.scenario, job.flow, job.seed)}]
    if isinstance(job, Behaviour):
        return reading.happened()
    return reading.described(_copies(), *_decisions(), reading.inputs(_reference()))


def fair_power(scenario: Scenario, flow: Mapping[str, Any], seed: int) -> float:
    """Return the fair power of a scenario whose agent flows run this (`FairPower.flow`)."""
    if (driver := flow.get("driver")) is not None:
        trace = simulate(scenario, "native", seed=seed, step_ms=STEP_MS, policy=_driver(driver, scenario))
    else:
        flows = tuple(replace(each, **flow) if each.algorithm == "agent" else each for each in scenario.flows)
        trace = simulate(replace(scenario, flows=flows), "native", seed, 1e3 * WARMUP * scenario.duration_s)
    return Sharing.of_trace(trace, WARMUP).fair_power


def _driver(name: str, scenario: Scenario) -> Policy:
    """Return what steers agent flows from outside: the rule, the policy, or a copy of it."""
    if name == RULE:
        return _rule().policy(scenario)
    agent = replace(_reference())  # a copy, which has a memory of its own
    return reading.driven(agent, agent.predict if name == IN_PYTHON else _copies()[name].predict, scenario)


def _runs(flow: Mapping[str, Any]) -> str:
    runs: str = flow.get("policy") or flow.get("driver") or flow["algorithm"]
    return runs


@cache
def _decides(runs: str) -> list[Any]:
    """Return what decides the gains of an algorithm or a driver, besides the code of the engine and its parameters."""
    if runs == RULE:
        return [_rule().content_hash]
    if runs in (POLICY, IN_PYTHON):
        return [_reference().content_hash]
    if runs == str(LINEAR_REFERENCE):
        return [read_policy(LINEAR_REFERENCE).content_hash]
    return [_reference().content_hash, CHOOSES, READ, SIZES, LEAVES] if runs in COPIES else []


@cache
def _reference() -> Agent:
    return load_agent(REFERENCE)


@cache
def _rule() -> Agent:
    return scripted_agent("backlog", replace(_reference().spec, observation=Observation()))


@cache
def _decisions() -> tuple[Values, Values]:
    return reading.decisions(_reference(), draw(CHOOSES, READ))


@cache
def _copies() -> dict[str, Copy]:
    return reading.copies(*_decisions())


@cache
def draw(seed: int, count: int, distribution: str = FIRST) -> Sequence[Scenario]:
    """Return scenarios of a distribution of conf/scenario."""
    drawn, rng = Distribution.of(distribution), np.random.default_rng(seed)
    return tuple(drawn.sample(rng) for _ in range(count))


def competitors() -> dict[str, dict[str, Any]]:
    """Return what flows run, by name; the constants of the grid are not among them."""
    published = {name: {"algorithm": name} for name in PUBLISHED}
    small = {"algorithm": POLICY, "policy": str(LINEAR_REFERENCE)}
    return {POLICY: {"algorithm": POLICY}, **BY_HAND, SMALL: small, **published}


def fixed(packets: float) -> dict[str, Any]:
    """Return the flow of a constant backlog: the hand-made controller without what corrects it."""
    return {"algorithm": FIXED.algorithm, "parameters": {**FIXED.parameters, "backlog_packets": packets}}


def constant(packets: float) -> str:
    """Return the name of a constant backlog."""
    return f"{CONSTANT}, {packets:g} packets"


def best_constant(means: Mapping[float, float]) -> float:
    """Return the constant backlog, in packets, with the best mean in the scenarios that judge nothing."""
    return max(means, key=lambda packets: means[packets])


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the comparison with what is simple, and what a person can read of the policy."""

    def powers(role: str, name: str) -> Powers:
        rows = [results[f"{role}/{name}/{number}"][0] for number in range(1, COUNT + 1)]
        return np.array([row["fair_power"] for row in rows])

    def compared(chooses: str, judges: str) -> tuple[dict[str, Powers], str]:
        """Return the fair powers by competitor, and the name of the constant."""
        best = best_constant({packets: float(powers(chooses, constant(packets)).mean()) for packets in PACKETS})
        constants = {packets: powers(judges, constant(packets)) for packets in PACKETS}
        found = {name: powers(judges, name) for name in competitors()}
        found |= {constant(best): constants[best], ORACLE: np.max(list(constants.values()), axis=0)}
        return found, constant(best)

    found, best = compared("chooses", "judges")
    wider, best_wider = compared("chooses wider", "judges wider")
    policy, highest = found[POLICY], best_of(found)
    copies = {row["copy"]: row for row in results[Reading().name]}
    means = {name: float(powers("judges", name).mean()) for name in (IN_PYTHON, *COPIES)}
    smallest = max(LINEAR.values(), key=means.__getitem__)
    return {
        "scenarios": COUNT,
        "best": int((policy >= highest).sum()),
        "above_constant": int((policy > found[best]).sum()),
        "above_hand_made": int((policy > found[HAND_MADE]).sum()),
        "worst": f"{policy.min():.2f}",
        "comparison": comparison(found, best, list(map(family, scenarios("judges"))), [*FAMILIES, UNEVEN, MOVING]),
        "wider": comparison(wider, best_wider, list(map(kind, scenarios("judges wider"))), WIDER),
        "starts": starts_text(read_object(REFERENCE / RECORD).get("starts", [])),
        "small_weights": sum(array.size for array in read_policy(LINEAR_REFERENCE).network.to_arrays().values()),
        "decisions": int(copies[ALL]["decisions"]),
        "read": READ,
        "copies": copies_table(copies, means),
        "smallest": title(copies[smallest]),
        "weights": reading.weights_table(copies[smallest]),
        "tree_title": TREE,
        "actions": reading.ACTIONS,
        "tree": copies[TREE]["tree"],
        "happened": reading.happened_table(results[Behaviour().name]),
        "behaviour": figure("behaviour", reading.behaviour),
    }


def starts_text(starts: Sequence[Mapping[str, float]]) -> str:
    """Return where trainings of the policy end that begin with different random weights (`studies.adopt`)."""
    powers = ", ".join(f"{start['fair_power']:.3f}" for start in starts)
    minutes = [start["processor_minutes"] for start in starts if "processor_minutes" in start]
    spent = f", after {np.mean(minutes):.0f} processor minutes on average" if minutes else ""
    began = f"{len(starts)} random starts" if len(starts) != 1 else "one random start"
    return f"From {began} the training ends at a fair power of {powers} in its evaluations{spent}."


def best_of(found: Mapping[str, Powers]) -> Powers:
    """Return the fair power of the best in each scenario; the oracle does not count."""
    highest: Powers = np.max([powers for name, powers in found.items() if name != ORACLE], axis=0)
    return highest


def yardstick(found: Mapping[str, Powers]) -> Powers:
    """Return the fair power of the best of all but the policy in each scenario; the oracle counts."""
    highest: Powers = np.max([powers for name, powers in found.items() if name != POLICY], axis=0)
    return highest


def comparison(found: Mapping[str, Powers], best: str, of_each: Sequence[str], names: Sequence[str]) -> str:
    """Return the table: one row per competitor, one column per kind of scenarios.

    Args:
        found: the fair power of each competitor in each scenario.
        best: the constant's name.
        of_each: the kind of each scenario.
        names: of all kinds.
    """
    families = np.array(of_each)
    published = max(PUBLISHED, key=lambda name: float(found[name].mean()))
    highest, of_all, rows = best_of(found), yardstick(found), []
    simple = [HAND_MADE, RULE, SMALL, best, ORACLE, YARDSTICK]
    for name in dict.fromkeys([POLICY, *simple, published, "bbr", "bbr3", "cubic"]):
        powers = of_all if name == YARDSTICK else found[name]
        low, high = bootstrap_interval(powers, np.mean)
        rows.append(
            [
                name,
                f"{powers.mean():.3f} [{low:.3f} {high:.3f}]",
                f"{interquartile_mean(powers):.3f}",
                *(f"{powers[families == of].mean():.3f}" for of in names),
                f"{np.divide(powers, of_all, out=np.zeros_like(powers), where=of_all > 0).mean():.3f}",
                str(int((highest - powers > BEHIND).sum())),
            ]
        )
    kinds = [f"{of} ({(families == of).sum()})" for of in names]
    headings = [
        "",
        "mean [95 %]",
        "interquartile mean",
        *kinds,
        f"of the {YARDSTICK}",
        f"more than {BEHIND} behind the best",
    ]
    return page.table(headings, rows, range(1, len(headings)))


def family(scenario: Scenario) -> str:
    """Return the name of the kind of a scenario: by what is uncertain on its paths, or else by its number of flows."""
    flows = [flow for flow in scenario.flows if not flow.is_absent]
    if any(flow.jitter_ms > 0.5 or flow.ack_aggregation_ms > 0 for flow in flows):
        return UNEVEN
    if any(flow.rtt_schedule for flow in flows):
        return MOVING
    return next(name for name, most in FAMILIES.items() if len(flows) <= most)


def kind(scenario: Scenario) -> str:
    """Return the name of the kind of a scenario of `families_v2`."""
    flows = [flow for flow in scenario.flows if not flow.is_absent]
    if scenario.rate_schedule:
        return CHANGING
    if scenario.policer_mbps or scenario.loss not in (0.0, 0.0001, 0.001, 0.01):
        return LOSSY
    if any(flow.rtt_schedule for flow in flows):
        return MOVING
    if any(flow.jitter_ms > 0.5 or flow.ack_aggregation_ms > 0 for flow in flows):
        return UNEVEN
    if scenario.duration_s < 15.0:
        return FAST
    return CROWD if len(flows) > FAMILIES["two to four flows"] else PLAIN


def copies_table(copies: Mapping[str, Mapping[str, Any]], means: Mapping[str, float]) -> str:
    """Return what each copy explains, and what it reaches when it drives."""
    rows = [["the policy", "", f"{means[IN_PYTHON]:.3f}"]]
    rows += [[title(row), f"{row['explained']:.2f}", f"{means[name]:.3f}"] for name, row in copies.items()]
    return page.table(["", "explained variance of the actions", "fair power"], rows, (1, 2))


def title(copy: Mapping[str, Any]) -> str:
    """Return what the page calls a copy."""
    name: str = copy["copy"]
    return f"linear, all {len(copy['inputs'])} features" if name == ALL else name
