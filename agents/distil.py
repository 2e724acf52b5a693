"""Distillation of a teacher that is a search into a student with memory.

A simulator knows what no sender knows: what each action reaches in a scenario. The student sees observations alone. It
is an LSTM, which recognises the path, and perhaps a linear skip from the observation to the action. In each round it
drives all flows of all scenarios and learns from what they saw (DAgger, Ross et al. 2011, arXiv:1011.0686). Its loss in
every step of a link is its regret (`bbrgym.agents.lessons`): the most that an action reaches in this part of this
scenario, less what its own reaches, which a table gives by linear interpolation. So there are no labels and no rule:
where many actions are as good, all are right, and where it cannot know the path, it learns the action that costs least.

There are two teachers, one after the other:

* constant actions (`bbrgym.agents.constants`). All rounds are in the same scenarios. In the first a random constant
  drives the flows of a scenario, since a student that knows nothing stays where it starts.
* the student itself with something added to all of its actions, in new scenarios in each round. What is better than the
  student is learned, so that each round improves it: policy iteration, with the table in the place of a critic. A
  part of what a round changes is about its own scenarios alone, so the agent is the mean of the students after the last
  half of these rounds (averages of weights, as Izmailov et al. 2018, arXiv:1803.05407).

The actions of a round have a slow noise, the same for all flows of a link, from which the student learns to return.

Importing it loads torch.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from bbrgym._controllers import PolicyNetwork
from bbrgym.agents.callbacks import Callbacks, Learner, blaming
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import DistilConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.draws import bank_rng, draw_bank, measure_bank, objective
from bbrgym.agents.fitness import each_outcome
from bbrgym.agents.lessons import Lesson, Seen, Table, joined, sequences
from bbrgym.agents.policy import Agent
from bbrgym.agents.torch_network import policy_with_memory
from bbrgym.baselines.policy_file import Array, Network, StoredPolicy
from bbrgym.checks import check_integer
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec, count_steps
from bbrgym.envs.observation import standardisation
from bbrgym.envs.scenario import Scenario

NOISE_STEPS: Final = 20
"""How many steps a noise lasts: long enough to change the queue."""
LAST_RATE: Final = 0.05
"""The learning rate of a round's last epoch, of that of its first."""
CWND_MOVES: Final = (-0.1, 0.0, 0.1)
PACING_MOVES: Final = (-0.25, 0.0, 0.25)
"""What is added to the actions for cwnd_gain and for pacing_gain of a student, one of them at a time."""
LEAST_QUEUED: Final = 0.1
"""Packets above one BDP that a constant keeps in the queue, at least."""
_BDP: Final = 1000.0
"""In packets: any will do, if what is above one does not depend on it."""
_DELIVERED: Final = FLOW_COLUMNS.index("delivered_packets")
_AT_ONCE: Final = 64
"""Engines of a rollout, whose rows are in memory."""

_WEIGHTS, _ROLLOUT, _ORDER = range(10, 13)
"""What random numbers are for: the second entry of a generator's seed, after the seed of the training."""


class Distillation(Learner):
    """See `bbrgym.agents.callbacks.Learner`. Decisions of the rounds are steps, which count as the round is learned.

    Everything random follows from the seed, the number of the round and of the epoch. A checkpoint has the student, its
    optimiser, and the policies that drove the rounds, with which `learn` repeats their rollouts after `restore`.
    """

    steps = 0
    unit = "an epoch"

    def __init__(self, config: DistilConfig, spec: EpisodeSpec, seed: int) -> None:
        self._config = config
        self._spec = spec
        self._seed = seed
        self._constants = Constants(spec, config, config.windows)
        inputs = spec.observation.space.shape[0]
        with torch.random.fork_rng():
            torch.manual_seed(int(self._rng(_WEIGHTS).integers(2**62)))
            self._student = policy_with_memory(inputs, config.units, has_skip=config.has_skip)
        self._optimiser = self._make_optimiser()
        self._inputs: tuple[Array, Array] | None = None  # mean and scale
        self._round = self._epoch = 0  # that come next
        self._drivers: list[Network | None] = []  # the policies of the rounds; None is random constants
        self._lessons: dict[int, Lesson] = {}  # that the round needs, by their rounds
        self._counted: dict[int, torch.Tensor] = {}  # steps of the scenarios of rounds

    @property
    def has_learned(self) -> bool:
        """Whether there was an epoch."""
        return self._round + self._epoch > 0

    @cached_property
    def most_steps(self) -> int:
        """The decisions of all rounds."""
        return self._steps_until(self._rounds)

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """See `Learner`; a round is a rollout."""
        callbacks.on_training_start(self)
        is_on = True
        while is_on and self.steps < min(total_steps, self.most_steps):
            if self._epoch == 0:
                callbacks.on_rollout_start(self)
            is_on = self._prepare(callbacks) and self._fit(total_steps, callbacks)
        callbacks.on_training_end(self)

    def agent(self) -> Agent:
        """Return the student; after improvements the mean of the students after the last half of them."""
        return Agent(self._spec, self._mean())

    def objective(self) -> dict[str, float]:
        """See `Learner`: in fresh scenarios, so that the best round is kept."""
        return objective(self._spec, self._config, self._mean())

    def restart(self, seed: int, state: TrainingState) -> None:
        """Do nothing: every round and every epoch starts from its own seed."""

    def save(self, folder: Path) -> dict[str, Any]:
        """See `Restorable`."""
        torch.save([self._student.state_dict(), self._optimiser.state_dict()], folder / "student.pt")
        mean, scale = self._inputs or _no_inputs(self._spec)
        arrays = {"mean": mean, "scale": scale}
        for index, driver in enumerate(self._drivers):
            arrays |= {f"{index}/{name}": array for name, array in (driver.to_arrays() if driver else {}).items()}
        np.savez(folder / "rounds.npz", **arrays)  # type: ignore[arg-type]
        is_standardised = self._inputs is not None
        return {
            "round": self._round,
            "epoch": self._epoch,
            "drivers": len(self._drivers),
            "is_standardised": is_standardised,
        }

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """See `Restorable`."""
        student, optimiser = torch.load(folder / "student.pt", weights_only=True)
        self._student.load_state_dict(student)
        self._optimiser = self._make_optimiser()
        self._optimiser.load_state_dict(optimiser)
        count = check_integer("drivers", description["drivers"], at_least=0)
        drivers: list[dict[str, Array]] = [{} for _ in range(count)]
        with np.load(folder / "rounds.npz", allow_pickle=False) as saved:
            for full_name in saved.files:
                index, _, name = full_name.partition("/")
                if name:
                    drivers[int(index)][name] = saved[full_name]
            inputs = saved["mean"], saved["scale"]
        like = self._student.network()
        self._drivers = [
            Network.from_arrays(arrays, like.activation, like.output) if arrays else None for arrays in drivers
        ]
        self._inputs = inputs if description["is_standardised"] else None
        self._lessons = {}
        self._round, self._epoch, self.steps = (
            check_integer(name, description[name], at_least=0) for name in ("round", "epoch", "steps")
        )

    def close(self) -> None:
        """See `Learner`; engines end with each rollout."""

    @property
    def _rounds(self) -> int:
        return self._config.rounds + self._config.improvements

    def _prepare(self, callbacks: Callbacks) -> bool:
        """Make what this round learns from; return whether there was time for it."""
        number = self._round
        if len(self._drivers) == number:
            self._drivers.append(self._network() if number else None)
            self._optimiser = self._make_optimiser()
        improves = number >= self._config.rounds
        needed = [number] if improves else list(range(number + 1))
        self._lessons = {known: lesson for known, lesson in self._lessons.items() if known in needed}
        for each in needed:
            if each not in self._lessons:
                lesson = self._improve(each, callbacks) if improves else self._imitate(each, callbacks)
                if lesson is None:
                    return False
                self._lessons[each] = lesson
        return True

    def _imitate(self, number: int, callbacks: Callbacks) -> Lesson | None:
        """Return what a round has to teach of constants; None if there was no time for it."""
        scenarios, seeds = self._bank(number)
        begin_s = time.monotonic()
        table = measure_bank(self._constants, scenarios, seeds, callbacks)
        if table is None:
            return None
        if self.steps == 0:
            of_scenarios = table.mean(axis=1)
            metrics = {
                "teacher/oracle_constant": float(of_scenarios.max(axis=1).mean()),
                "teacher/best_constant": float(of_scenarios.mean(axis=0).max()),
                "time/teacher": time.monotonic() - begin_s,
            }
            callbacks.log_metrics(metrics, 0)
            best = self._constants.actions[of_scenarios.mean(axis=0).argmax()]
            self._student.begin_with((float(best), self._constants.pacing))
        seen = self._drive(number)
        return Lesson(seen, self._steps(number), cwnd=self._table(self._constants.actions, table), queued=self._queued)

    def _improve(self, number: int, callbacks: Callbacks) -> Lesson | None:
        """Return what a round has to teach of actions beside its driver's; None if there was no time for it."""
        scenarios, seeds = self._bank(number)
        moves = [(move, 0.0) for move in CWND_MOVES] + [(0.0, move) for move in PACING_MOVES if move]
        driver = self._drivers[number]
        assert driver is not None
        moved = [self._bytes(_moved(driver, *move)) for move in moves]
        values = np.empty((len(scenarios), self._config.windows, len(moves)))
        results = each_outcome(self._spec, self._config, moved, scenarios, seeds, self._config.windows)
        with closing(results):
            for done, (index, outcomes) in enumerate(results, 1):
                values[index] = outcomes.T
                if not callbacks.on_preparation("moves in scenario", done, len(scenarios)):
                    return None
        own = values[..., CWND_MOVES.index(0.0)]
        of_pacing = np.insert(values[..., len(CWND_MOVES) :], PACING_MOVES.index(0.0), own, axis=2) - own[..., None]
        callbacks.log_metrics(
            {
                "teacher/student": float(own.mean()),
                "teacher/best_move": float(values.max(axis=2).mean()),
            },
            self.steps,
        )
        seen = self._drive(number)
        return Lesson(
            seen,
            self._steps(number),
            cwnd=self._table(CWND_MOVES, values[..., : len(CWND_MOVES)]),
            pacing=self._table(PACING_MOVES, of_pacing),
            base=_actions(PolicyNetwork(self._bytes(driver)), seen),
            queued=self._queued,
        )

    def _drive(self, number: int) -> Seen:
        """Return what a round saw in all of its scenarios."""
        driver = self._drivers[number]
        policy = None if driver is None else PolicyNetwork(self._bytes(driver))
        spec, config, rng = self._spec, self._config, self._rng(_ROLLOUT, number)
        count = min(config.scenarios, _AT_ONCE)
        parts: list[Seen] = []
        with closing(Episodes(spec, count)) as env:
            for first in range(0, config.scenarios, count):
                indices = np.minimum(np.arange(first, first + count), config.scenarios - 1)  # the last one again
                bank = indices + self._first_of(number)
                env.begin_resets(np.arange(count), [bank_rng(self._seed, int(index)) for index in bank])
                env.finish_resets()
                steps = env.most_steps
                shape = math.ceil(steps / NOISE_STEPS), count
                noise = rng.normal(0.0, config.noise, shape).repeat(NOISE_STEPS, axis=0)[:steps]
                actions = np.zeros((steps, count, spec.agents, 2), np.float32)
                actions[..., 0] = noise[..., np.newaxis]
                if policy is None:
                    constants = rng.uniform(self._constants.actions[0], self._constants.actions[-1], count)
                    actions[..., 0] += constants[:, np.newaxis]
                    actions[..., 1] = self._constants.pacing
                rollout = env.begin_rollout(actions.reshape(steps, -1, 2))
                env.run(rollout, policy)
                is_new = np.arange(first, first + count) < config.scenarios
                took_part = rollout.took_part() & is_new.repeat(spec.agents)
                parts.append(
                    sequences(
                        rollout.arrays.observations,
                        actions=rollout.arrays.actions[..., 0],
                        delivered=rollout.column(_DELIVERED),
                        took_part=took_part,
                        scenarios=indices.repeat(spec.agents),
                        lengths=self._steps(number).numpy()[indices].repeat(spec.agents),
                    )
                )
        seen = joined(parts)
        if self._inputs is None:
            self._inputs = standardisation(seen.observations[seen.took_part])
        return seen

    def _fit(self, total_steps: int, callbacks: Callbacks) -> bool:
        """Learn from the lessons, to the end of this round; return whether there is time for more."""
        config = self._config
        begin, end = self._steps_until(self._round), self._steps_until(self._round + 1)
        inputs = self._inputs or _no_inputs(self._spec)
        is_on = True
        while self._epoch < config.epochs and self.steps < total_steps and is_on:
            begin_s, losses = time.monotonic(), []
            for group in self._optimiser.param_groups:
                group["lr"] = config.learning_rate * (1 - (1 - LAST_RATE) * self._epoch / max(config.epochs - 1, 1))
            rng = self._rng(_ORDER, self._round, self._epoch)
            batches = [(each, part) for each in self._lessons.values() for part in each.batches(config.batch_size, rng)]
            for index in rng.permutation(len(batches)):
                lesson, flows = batches[index]
                loss, regret = lesson.loss(self._student, flows, inputs)
                self._optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self._student.parameters(), config.max_grad_norm)
                self._optimiser.step()
                losses.append(regret)
            self._epoch += 1
            self.steps = begin + (end - begin) * self._epoch // config.epochs
            metrics = {
                "distil/regret": float(np.mean(losses)),
                "distil/round": float(self._round + 1),
                "time/epoch": time.monotonic() - begin_s,
            }
            callbacks.log_metrics(metrics, self.steps)
            is_on = callbacks.on_step(self.steps)
        if self._epoch == config.epochs:
            self._round, self._epoch = self._round + 1, 0
        return is_on

    def _first_of(self, number: int) -> int:
        """Return the place in the bank of the first scenario of a round."""
        return self._config.scenarios * max(0, number - self._config.rounds + 1)

    def _bank(self, number: int) -> tuple[list[Scenario], list[int]]:
        """Return the scenarios of a round, and their seeds."""
        return _bank(self._spec, self._seed, self._first_of(number), self._config.scenarios)

    def _steps(self, number: int) -> torch.Tensor:
        """Return the steps of each scenario of a round."""
        if number not in self._counted:
            steps = self._spec.max_episode_steps
            if steps is None:  # draws differ in it
                counts = [count_steps(each.duration_s, self._spec.interval_ms(each)) for each in self._bank(number)[0]]
            else:
                counts = [steps] * self._config.scenarios
            self._counted[number] = torch.as_tensor(counts)
        return self._counted[number]

    def _steps_until(self, number: int) -> int:
        """Return the decisions of all rounds before this one."""
        return self._spec.agents * sum(int(self._steps(each).sum()) for each in range(number))

    def _table(self, actions: Any, values: Any) -> Table:
        return Table(torch.as_tensor(actions, dtype=torch.float32), torch.as_tensor(values, dtype=torch.float32))

    @cached_property
    def _queued(self) -> Table | None:
        """Logarithm of the packets that each constant keeps in the queue; None if that does not decide about shares."""
        if self._config.fitness == "reward" or self._spec.action.cwnd_scale != "packets":
            return None
        actions = np.stack([self._constants.actions, np.zeros_like(self._constants.actions)], axis=1)
        gains = self._spec.action.all_gains(actions, np.full(len(actions), _BDP))[0]
        packets = np.maximum((gains - 1) * _BDP, LEAST_QUEUED)
        return self._table(self._constants.actions, np.log(packets)[np.newaxis, np.newaxis])

    def _bytes(self, network: Network) -> bytes:
        return StoredPolicy(self._spec.policy_config(), network).to_bytes()

    def _network(self) -> Network:
        with blaming(learning_rate=self._config.learning_rate):
            network = self._student.network()
            return network if self._inputs is None else network.with_standardised_inputs(*self._inputs)

    def _mean(self) -> Network:
        """Return what `agent` describes."""
        learned = self._round + (self._epoch == self._config.epochs)  # rounds, as a whole
        after = range(self._config.rounds + 1, learned + 1)
        drivers = dict(enumerate(self._drivers))  # the student after a round drives the next one
        students = [drivers.get(rounds) or self._network() for rounds in after[len(after) // 2 :]]
        if not students:
            return self._network()
        arrays = [student.to_arrays() for student in students]
        stacked = {name: np.stack([each[name] for each in arrays]) for name in arrays[0]}
        mean = {name: np.asarray(each.mean(axis=0, dtype=np.float64), np.float32) for name, each in stacked.items()}
        return Network.from_arrays(mean, students[-1].activation, students[-1].output)

    def _make_optimiser(self) -> torch.optim.Adam:
        return torch.optim.Adam(self._student.parameters(), self._config.learning_rate)

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *purpose])


@lru_cache(maxsize=1)
def _bank(spec: EpisodeSpec, seed: int, first: int, count: int) -> tuple[list[Scenario], list[int]]:
    return draw_bank(spec, seed, count, first)


def _moved(network: Network, cwnd: float, pacing: float) -> Network:
    """Return a network that adds to both of its actions."""
    *layers, (weight, bias) = network.layers
    moved = bias + np.array([cwnd, pacing], np.float32)
    return dataclasses.replace(network, layers=(*layers, (weight, moved)))


def _actions(policy: PolicyNetwork, seen: Seen) -> Array:
    """Return what a policy does in sequences, shape (K, T, 2)."""
    flows, steps = seen.took_part.shape
    state = np.zeros((flows, policy.state_size), np.float32)
    actions = np.empty((flows, steps, 2), np.float32)
    for step in range(steps):
        actions[:, step] = policy.forward(np.ascontiguousarray(seen.observations[:, step]), state)
    return actions


def _no_inputs(spec: EpisodeSpec) -> tuple[Array, Array]:
    shape = spec.observation.space.shape
    return np.zeros(shape, np.float32), np.ones(shape, np.float32)
