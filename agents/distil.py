"""Distillation of a teacher that is a search into a student with memory.

A simulator knows what no sender knows: what each constant action reaches in a scenario (`bbrgym.agents.constants`).
The student sees observations alone. It is an LSTM, which recognises the path, and perhaps a linear skip from the
observation to the action. In each round it drives all flows of all scenarios, and what it saw is kept (DAgger, Ross et
al. 2011, arXiv:1011.0686). Then it learns from the rounds so far. Its loss at every step of every flow is its regret:
what the best constant reaches in this scenario, less what its own action would as a constant, which the table gives by
linear interpolation. So there are no labels and no rule: where many actions are as good, all are right, and where it
cannot know the path, it learns the action that costs least.

In the first round a random constant drives the flows of a scenario, since a student that knows nothing stays where it
starts. An action has a slow noise, the same for all flows of a link, from which the student learns to return.

Importing it loads torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bbrgym._controllers import PolicyNetwork
from bbrgym.agents.callbacks import Callbacks, Learner, blaming
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import DistilConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.draws import bank_rng, draw_bank, measure_bank, objective
from bbrgym.agents.policy import Agent
from bbrgym.baselines.policy_file import Array, Network, StoredPolicy
from bbrgym.checks import check_integer
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec, count_steps
from bbrgym.envs.observation import standardisation
from bbrgym.envs.scenario import Scenario

OUTPUT_SCALE: Final = 0.1
"""Scale of the last layer at the start, so that the first actions are close to the best constant."""
NOISE_STEPS: Final = 20
"""How many steps a noise lasts: long enough to change the queue."""
FIRST_STEPS, FIRST_WEIGHT = 20, 0.2
"""How many steps of a flow count less, and how much: nobody can know the path yet."""
LEAST_PART: Final = 0.3
"""A flow that takes part in a smaller fraction of the steps teaches nothing about its path."""
OUTSIDE: Final = 5.0
"""The loss of an action outside of the table, per unit."""
HALVED_AFTER: Final = 2
"""After so many rounds the learning rate is half: what was seen changes less."""
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
        self._constants = Constants(spec, config)
        inputs = spec.observation.space.shape[0]
        with torch.random.fork_rng():
            torch.manual_seed(int(self._rng(_WEIGHTS).integers(2**62)))
            self._student = Student(inputs, config.units, has_skip=config.has_skip)
        self._optimiser = self._make_optimiser()
        self._inputs: tuple[Array, Array] | None = None  # mean and scale
        self._round = self._epoch = 0  # that come next
        self._drivers: list[bytes] = []  # the policies of the rounds; b"" is random constants
        self._seen: list[_Seen] = []
        self._table: torch.Tensor | None = None

    @property
    def has_learned(self) -> bool:
        """Whether there was an epoch."""
        return self._round + self._epoch > 0

    @cached_property
    def most_steps(self) -> int:
        """The decisions of all rounds."""
        return self._config.rounds * self._decisions_per_round

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """See `Learner`; a round is a rollout."""
        callbacks.on_training_start(self)
        is_on = self._teach(callbacks)
        while is_on and self.steps < min(total_steps, self.most_steps):
            if self._epoch == 0:
                callbacks.on_rollout_start(self)
                if len(self._drivers) == self._round:
                    self._drivers.append(self._policy() if self._round else b"")
                    self._optimiser = self._make_optimiser()
            while len(self._seen) <= self._round:
                self._seen.append(self._drive(len(self._seen)))
            is_on = self._fit(total_steps, callbacks)
        callbacks.on_training_end(self)

    def agent(self) -> Agent:
        """Return the student."""
        return Agent(self._spec, self._network())

    def objective(self) -> dict[str, float]:
        """See `Learner`: in fresh scenarios, so that the best round is kept."""
        return objective(self._spec, self._config, self._network())

    def restart(self, seed: int, state: TrainingState) -> None:
        """Do nothing: every round and every epoch starts from its own seed."""

    def save(self, folder: Path) -> dict[str, Any]:
        """See `Restorable`."""
        torch.save([self._student.state_dict(), self._optimiser.state_dict()], folder / "student.pt")
        mean, scale = self._inputs or _no_inputs(self._spec)
        drivers = {f"driver.{index}": np.frombuffer(each, np.uint8) for index, each in enumerate(self._drivers)}
        np.savez(folder / "rounds.npz", mean=mean, scale=scale, **drivers)  # type: ignore[arg-type]
        return {"round": self._round, "epoch": self._epoch, "is_standardised": self._inputs is not None}

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """See `Restorable`."""
        student, optimiser = torch.load(folder / "student.pt", weights_only=True)
        self._student.load_state_dict(student)
        self._optimiser = self._make_optimiser()
        self._optimiser.load_state_dict(optimiser)
        with np.load(folder / "rounds.npz", allow_pickle=False) as saved:
            inputs = saved["mean"], saved["scale"]
            self._drivers = [saved[f"driver.{index}"].tobytes() for index in range(len(saved.files) - 2)]
        self._inputs = inputs if description["is_standardised"] else None
        self._seen = []
        self._round, self._epoch, self.steps = (
            check_integer(name, description[name], at_least=0) for name in ("round", "epoch", "steps")
        )

    def close(self) -> None:
        """See `Learner`; engines end with each rollout."""

    def _teach(self, callbacks: Callbacks) -> bool:
        """Make the table of what constants reach; return whether there is time for more."""
        if self._table is not None:
            return True
        scenarios, seeds = self._bank
        begin_s = time.monotonic()
        table = measure_bank(self._constants, scenarios, seeds, callbacks)
        if table is None:
            return False
        if self.steps == 0:
            metrics = {
                "teacher/oracle_constant": float(table.max(axis=1).mean()),
                "teacher/best_constant": float(table.mean(axis=0).max()),
                "time/teacher": time.monotonic() - begin_s,
            }
            callbacks.log_metrics(metrics, 0)
            best = self._constants.actions[table.mean(axis=0).argmax()]
            with torch.no_grad():
                self._student.out.bias.fill_(float(best))
        self._table = torch.as_tensor(table, dtype=torch.float32)
        return True

    def _drive(self, number: int) -> _Seen:
        """Return what a round saw: all scenarios, driven by the policy of this round."""
        driver = self._drivers[number]
        policy = PolicyNetwork(driver) if driver else None
        spec, config, rng = self._spec, self._config, self._rng(_ROLLOUT, number)
        count = min(config.scenarios, _AT_ONCE)
        parts: list[_Seen] = []
        with closing(Episodes(spec, count)) as env:
            for first in range(0, config.scenarios, count):
                indices = np.minimum(np.arange(first, first + count), config.scenarios - 1)  # the last one again
                env.begin_resets(np.arange(count), [bank_rng(self._seed, int(index)) for index in indices])
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
                parts.append(_sequences(rollout.arrays.observations, took_part, indices.repeat(spec.agents)))
        seen = _joined(parts)
        if self._inputs is None:
            self._inputs = standardisation(seen.observations[seen.took_part])
        return seen

    def _fit(self, total_steps: int, callbacks: Callbacks) -> bool:
        """Learn from the rounds so far, to the end of this one; return whether there is time for more."""
        config = self._config
        mean, scale = (torch.as_tensor(each) for each in self._inputs or _no_inputs(self._spec))
        rate = config.learning_rate * (1.0 if self._round < HALVED_AFTER else 0.5)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        decisions = self._decisions_per_round
        is_on = True
        while self._epoch < config.epochs and self.steps < total_steps and is_on:
            begin_s, losses = time.monotonic(), []
            for seen, flows in self._batches():
                observations = (torch.as_tensor(seen.observations[flows]) - mean) * scale
                loss, regret = self._loss(observations, seen.took_part[flows], seen.scenarios[flows])
                self._optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
                nn.utils.clip_grad_norm_(self._student.parameters(), config.max_grad_norm)
                self._optimiser.step()
                losses.append(regret)
            self._epoch += 1
            self.steps = decisions * self._round + decisions * self._epoch // config.epochs
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

    def _batches(self) -> list[tuple[_Seen, npt.NDArray[np.intp]]]:
        """Return the flows of all batches of an epoch, each of one round, in a random order."""
        rng = self._rng(_ORDER, self._round, self._epoch)
        batches = []
        for seen in self._seen:
            count = len(seen.scenarios)
            parts = np.array_split(rng.permutation(count), math.ceil(count / self._config.batch_size))
            batches += [(seen, part) for part in parts]
        return [batches[index] for index in rng.permutation(len(batches))]

    def _loss(
        self, observations: torch.Tensor, took_part: npt.NDArray[np.bool_], scenarios: npt.NDArray[np.intp]
    ) -> tuple[torch.Tensor, float]:
        """Return the loss and the regret of sequences, shape (flows, steps, …)."""
        assert self._table is not None
        action = self._student(observations)
        weight = torch.as_tensor(took_part, dtype=torch.float32)
        weight[:, :FIRST_STEPS] *= FIRST_WEIGHT
        table = self._table[torch.as_tensor(scenarios)]  # (flows, constants)
        best = table.max(dim=1, keepdim=True).values
        regret = ((best - _interpolated(table, self._grid, action)) * weight).sum() / weight.sum()
        outside = torch.relu(action - self._grid[-1]) + torch.relu(self._grid[0] - action)
        return regret + OUTSIDE * (outside * weight).sum() / weight.sum(), float(regret.detach())

    @property
    def _grid(self) -> torch.Tensor:
        return torch.as_tensor(self._constants.actions, dtype=torch.float32)

    @cached_property
    def _bank(self) -> tuple[list[Scenario], list[int]]:
        return draw_bank(self._spec, self._seed, self._config.scenarios)

    @cached_property
    def _decisions_per_round(self) -> int:
        spec = self._spec
        steps = sum(count_steps(each.duration_s, spec.interval_ms(each)) for each in self._bank[0])
        return steps * spec.agents

    def _policy(self) -> bytes:
        return StoredPolicy(self._spec.to_config(), self._network()).to_bytes()

    def _network(self) -> Network:
        with blaming(learning_rate=self._config.learning_rate):
            network = self._student.network(self._constants.pacing)
            return network if self._inputs is None else network.with_standardised_inputs(*self._inputs)

    def _make_optimiser(self) -> torch.optim.Adam:
        return torch.optim.Adam(self._student.parameters(), self._config.learning_rate)

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *purpose])


class Student(nn.Module):
    """Chooses the action of cwnd_gain from standardised observations; that of pacing_gain is constant.

    Args:
        inputs: length of an observation.
        units: of the LSTM.
        has_skip: whether the observation itself adds to the action.
    """

    def __init__(self, inputs: int, units: int, *, has_skip: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, batch_first=True)
        self.out = nn.Linear(units, 1)
        self.skip = nn.Linear(inputs, 1, bias=False) if has_skip else None
        with torch.no_grad():
            self.out.weight.mul_(OUTPUT_SCALE)
            if self.skip is not None:
                self.skip.weight.zero_()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return actions, shape (flows, steps), for observations, shape (flows, steps, inputs)."""
        hidden, _ = self.lstm(observations)
        action: torch.Tensor = self.out(hidden)[..., 0]
        return action if self.skip is None else action + self.skip(observations)[..., 0]

    def network(self, pacing: float) -> Network:
        """Return the network that chooses both actions, of which `pacing` is constant."""
        state = {name: tensor.detach().numpy().copy() for name, tensor in self.state_dict().items()}
        of_input, of_state, *biases = (
            state[f"lstm.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        last = np.concatenate([state["out.weight"], np.zeros_like(state["out.weight"])])
        bias = np.array([state["out.bias"][0], pacing], np.float32)
        skip = None
        if self.skip is not None:
            skip = np.concatenate([state["skip.weight"], np.zeros_like(state["skip.weight"])])
        return Network(((last, bias),), ((of_input, of_state, sum(biases)),), skip=skip)


class _Seen(NamedTuple):
    """What K flows observed before each of their first T steps."""

    observations: Array  # (K, T, length of an observation)
    took_part: npt.NDArray[np.bool_]  # (K, T)
    scenarios: npt.NDArray[np.intp]  # (K,): of the bank


def _sequences(observations: Array, took_part: npt.NDArray[np.bool_], scenarios: npt.NDArray[np.intp]) -> _Seen:
    """Return the sequences of the flows that take part, each from its own start on, as a policy in an engine has them.

    Args:
        observations: before each step and after the last, shape (T + 1, M, length).
        took_part: shape (T, M).
        scenarios: shape (M,).
    """
    steps = len(took_part)
    kept = np.flatnonzero(took_part.mean(axis=0) > LEAST_PART)
    first = took_part[:, kept].argmax(axis=0)
    places = np.arange(steps) + first[:, np.newaxis]  # (K, T)
    is_there = places < steps
    places = np.minimum(places, steps - 1)
    flows = kept[:, np.newaxis]
    return _Seen(observations[places, flows], took_part[places, flows] & is_there, scenarios[kept])


def _joined(parts: Sequence[_Seen]) -> _Seen:
    """Return all sequences, as long as the longest."""
    steps = max(part.took_part.shape[1] for part in parts)

    def padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.pad(values, [(0, 0), (0, steps - values.shape[1]), *[(0, 0)] * (values.ndim - 2)])

    return _Seen(
        np.concatenate([padded(part.observations) for part in parts]),
        np.concatenate([padded(part.took_part) for part in parts]),
        np.concatenate([part.scenarios for part in parts]),
    )


def _interpolated(table: torch.Tensor, grid: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return what actions, shape (flows, steps), reach by a table, shape (flows, constants), of a rising grid."""
    inside = actions.clamp(float(grid[0]), float(grid[-1]))
    above = torch.bucketize(inside.detach(), grid).clamp(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    share = (inside - low) / (high - low)
    return table.gather(1, above - 1) * (1 - share) + table.gather(1, above) * share


def _no_inputs(spec: EpisodeSpec) -> tuple[Array, Array]:
    shape = spec.observation.space.shape
    return np.zeros(shape, np.float32), np.ones(shape, np.float32)
