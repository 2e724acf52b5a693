"""`bbrgym atlas`: data sets that are made again, read, verified and resumed."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bbrgym import Scenario, simulate
from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.atlas import make
from bbrgym.benchmark.atlas.make import ShardJob, make_shard
from bbrgym.benchmark.atlas.manifest import (
    YARDSTICKS,
    Manifest,
    atlas_code,
    find_manifest,
    manifest_names,
    manifest_text,
    read_manifest,
)
from bbrgym.benchmark.atlas.minari_sets import _environment
from bbrgym.benchmark.atlas.shard_files import read_shard, shard_path, to_parquet
from bbrgym.benchmark.atlas.trajectories import Trajectories, Yardsticks, digests, shard_hash
from bbrgym.benchmark.atlas.transitions import read_transitions, regrets
from bbrgym.cli import main
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode import Episodes
from bbrgym.envs.observation import DEFAULT_FEATURES
from bbrgym.executors import LocalConfig, ThreadExecutor, make_executor

IN_PACKETS = {"cwnd_gain": [0.25, 64.0], "pacing_gain": [0.8, 1.3], "cwnd_scale": "packets"}
AGENT = {"algorithm": "agent", "rtt_ms": {"uniform": [10, 30]}}
PLAIN: dict[str, Any] = {
    "description": "three agents and a rival on a short link",
    "scenario": {
        "rate_mbps": {"log_uniform": [4, 12]},
        "buffer_bdp": 2,
        "duration_s": 3,
        "loss": 0.005,
        "flows": [
            AGENT,
            AGENT | {"start_s": 0.55, "stop_s": 2.25},
            AGENT | {"size_bytes": 60_000},
            AGENT | {"stop_s": 0.01},  # leaves in its first step
            {"algorithm": "cubic", "rtt_ms": 20},
        ],
    },
    "reference": list(load_agent(REFERENCE).spec.observation.features),
    "action": IN_PACKETS,
    "seed": 5,
    "episodes": 3,
    "shards": 2,
    "levels": {
        "random": [{"action": [0, 0], "noise": 1}],
        "mixed": [{"algorithm": "bbr"}, {"algorithm": "bbr-backlog"}],
        "expert": [{"policy": "reference", "noise": 0.05, "offset": [0.1, 0.0]}],
    },
    "yardsticks": {"bbr": {"algorithm": "bbr"}, "two": {"action": [0.2, 0.3]}},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbrgym.atlas_command.make_executor", lambda config: ThreadExecutor())


def written(name: str = "tiny.json", **changes: Any) -> Manifest:
    Path(name).write_text(json.dumps(PLAIN | changes), encoding="utf-8")
    return read_manifest(name)


def made(manifest: Manifest, kind: str, shard: int = 0) -> Trajectories | Yardsticks:
    return make_shard(ShardJob(manifest.recipe(kind), shard))


def level(manifest: Manifest, kind: str, shard: int = 0) -> Trajectories:
    found = made(manifest, kind, shard)
    assert isinstance(found, Trajectories)
    return found


def hashes(facts: list[make.ShardFacts]) -> dict[tuple[str, int], str]:
    return {(one.kind, one.shard): one.hash for one in facts}


def test_shards_do_not_depend_on_how_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = written()
    with ThreadExecutor() as executor:
        first = make.make_shards(manifest, manifest.kinds, [0, 1], Path("first"), executor)
    monkeypatch.setattr("bbrgym.benchmark.atlas.trajectories.AT_ONCE", 2)
    with make_executor(LocalConfig(workers=2)) as executor:  # type: ignore[attr-defined]
        second = make.make_shards(manifest, [*reversed(manifest.kinds)], [1, 0], Path("second"), executor)
    assert hashes(first) == hashes(second)
    assert len(set(hashes(first).values())) == 2 * len(manifest.kinds)


def test_recorded_actions_lead_the_environment_through_the_recorded_steps() -> None:
    manifest = written()
    for kind in ("random", "expert"):
        shard = level(manifest, kind)
        rngs = [np.random.default_rng([manifest.seed, 0, episode]) for episode in range(manifest.episodes)]
        replayed = 0
        with closing(Episodes(manifest.spec, manifest.episodes)) as env:
            env.begin_resets(np.arange(manifest.episodes), rngs)
            seen = [env.finish_resets()]
            rewards, endings = [], []
            ends = (shard.lengths + 1).cumsum()
            actions = np.zeros((30, manifest.episodes * 4, 2), np.float32)
            places = []
            for index, length in enumerate(shard.lengths.tolist()):
                row = int(shard.episodes[index]) * 4 + int(shard.flows[index])
                span = slice(int(shard.first_steps[index]), int(shard.first_steps[index]) + length)
                begin = int(ends[index]) - length - 1 - index  # each flow before has an observation more than steps
                actions[span, row] = shard.actions[begin : begin + length]
                places.append((row, span, begin, int(ends[index]) - length - 1, length))
            for step in range(30):
                env.act(actions[step])
                result = env.finish_step()
                seen.append(result.observations)
                rewards.append(result.rewards)
                endings.append(env.flow_endings(result))
        for row, span, begin, first, length in places:
            own = np.array(seen)[span.start : span.stop + 1, row]
            assert own.tobytes() == shard.observations[first : first + length + 1].tobytes()
            assert np.array(rewards)[span, row].tobytes() == shard.rewards[begin : begin + length].tobytes()
            complete, stopped = np.array(endings)[span.stop - 1 :, :, row].any(axis=0)
            last = begin + length - 1
            assert (shard.terminated[last], shard.truncated[last]) == (complete, not complete and stopped)
            assert not (shard.terminated | shard.truncated)[begin:last].any()
            replayed += length
        assert replayed == len(shard.rewards)


def test_flows_end_as_their_scenario_says() -> None:
    shard = level(written(), "expert")
    assert set(shard.flows.tolist()) == {0, 1, 2}  # the fourth takes part in one step, fewer than least_steps
    last = shard.lengths.cumsum() - 1
    is_finite = shard.flows == 2
    assert shard.terminated[last].tolist() == is_finite.tolist()
    assert shard.truncated[last].tolist() == (~is_finite).tolist()
    assert set(shard.first_steps[shard.flows == 1].tolist()) == {5}
    assert set(shard.lengths[shard.flows == 1].tolist()) == {18}
    assert np.abs(shard.actions).max() <= 1
    assert np.isfinite(shard.observations).all()


def test_a_policy_acts_on_what_it_observes() -> None:
    manifest = written(levels={"expert": [{"policy": "reference"}]})
    shard = level(manifest, "expert")
    names = manifest.spec.observation.features
    before = np.delete(shard.observations, (shard.lengths + 1).cumsum() - 1, axis=0)
    seen = before[:, [names.index(name) for name in manifest.reference]]
    agent = load_agent(REFERENCE)
    acted = []
    for flow, first in zip(np.split(seen, shard.lengths.cumsum()[:-1]), shard.first_steps, strict=True):
        agent.reset()
        for _ in range(first):  # its memory, if it has one, begins with the episode
            agent.predict(agent.spec.observation.neutral[np.newaxis])
        acted += [agent.predict(flow[step : step + 1]) for step in range(len(flow))]
    assert np.concatenate(acted).tobytes() == shard.actions.tobytes()
    noisy = level(written(), "expert")
    assert not np.array_equal(noisy.actions[:10], shard.actions[:10])


def test_actions_of_an_algorithm_are_its_gains() -> None:
    manifest = written()
    shard = level(manifest, "mixed")
    assert shard.behaviours.tolist() == [episode % 2 for episode in shard.episodes]
    scenario, seed = manifest.spec.draw(np.random.default_rng([manifest.seed, 0, 0]))
    trace = simulate(scenario.with_agents_as("bbr"), "native", seed, 100.0)
    last = int(shard.lengths[0]) - 1
    step = int(shard.first_steps[0]) + last
    columns = dict(zip(FLOW_COLUMNS, trace.flows[step, 0].tolist(), strict=True))
    expected = manifest.spec.action.action(columns["cwnd_gain"], columns["pacing_gain"], columns["bdp_packets"])
    assert shard.actions[last].tolist() == expected.tolist()
    names = manifest.spec.observation.features
    assert shard.observations[last + 1, names.index("log_bdp")] == pytest.approx(math.log10(columns["bdp_packets"]))


def test_an_algorithm_without_gains_is_a_yardstick_only() -> None:
    manifest = written(levels={"mixed": [{"algorithm": "cubic"}]}, yardsticks={"cubic": {"algorithm": "cubic"}})
    with pytest.raises(ValueError, match=r"cubic has no gains.*yardstick"):
        made(manifest, "mixed")
    assert np.isfinite(made(manifest, YARDSTICKS).rewards).all()


def test_yardsticks_reach_what_a_simulation_does() -> None:
    manifest = written()
    shard = made(manifest, YARDSTICKS, shard=1)
    assert isinstance(shard, Yardsticks)
    assert shard.episodes.tolist() == [3, 4, 5]
    scenario, seed = Scenario.from_dict(json.loads(shard.scenarios[0])), int(shard.seeds[0])
    trace = simulate(scenario.with_agents_as("bbr"), "native", seed, 100.0)
    rewards = manifest.spec.reward.over_steps(scenario, scenario.agent_flows, trace.flows, trace.link)
    total = rewards[:, 0].sum() + rewards[5:23, 1].sum() + rewards[:, 2].sum()
    is_active = trace.flows[:, 2, FLOW_COLUMNS.index("is_active")] > 0
    assert shard.rewards[0, 0] == pytest.approx(total / (len(rewards) + 18 + is_active.sum()))


def test_a_file_keeps_every_bit() -> None:
    manifest = written()
    with ThreadExecutor() as executor:
        make.make_shards(manifest, manifest.kinds, [0], Path("out"), executor)
    for kind in manifest.kinds:
        shard, facts = read_shard(shard_path(Path("out"), kind, 0))
        assert digests(shard) == digests(made(manifest, kind)) == facts.digests
    frame = pd.read_parquet("out/expert/000000.parquet")
    assert {"episode", "flow", "step", *DEFAULT_FEATURES, "action_cwnd", "reward", "truncated"} <= {*frame.columns}
    of_flow = frame[(frame.episode == 0) & (frame.flow == 0)]
    assert of_flow.step.tolist() == [*range(31)]
    assert of_flow.reward.isna().tolist() == [False] * 30 + [True]


def test_a_hash_is_of_little_endian_bytes() -> None:
    shard = level(written(), "random")
    swapped = dataclasses.replace(shard, rewards=shard.rewards.astype(">f8"))
    assert digests(swapped) == digests(shard)
    other = dataclasses.replace(shard, rewards=np.nextafter(shard.rewards, 1.0))
    assert [name for name, one in digests(other).items() if one != digests(shard)[name]] == ["rewards"]
    assert shard_hash(digests(other)) != shard_hash(digests(shard))


@pytest.mark.usefixtures("inline")
def test_make_resumes_and_repairs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written()
    made_now: list[str] = []

    def counted(job: ShardJob) -> bytes:
        made_now.append(job.name)
        return make_file(job)

    make_file = make.make_file
    monkeypatch.setattr(make, "make_file", counted)
    command = ["atlas", "make", "tiny.json", "--levels", "random,expert", "--folder", "out", "--quiet"]
    assert main([*command, "--shards", "0"]) == 0
    assert main(command) == 0
    assert made_now == ["random 0", "expert 0", "random 1", "expert 1"]
    Path("out/expert/000001.parquet").write_bytes(b"half")
    written(seed=6, levels={**PLAIN["levels"], "random": [{"action": [0.1, 0]}]})
    written()
    assert main(command) == 0
    assert made_now[4:] == ["expert 1"]
    written(levels={**PLAIN["levels"], "random": [{"action": [0.1, 0]}]})
    assert main(command) == 0
    assert made_now[5:] == ["random 0", "random 1"]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("inline")
def test_verify_says_which_shard_and_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written()
    command = ["atlas", "verify", "tiny.json", "--folder", "out", "--levels", "random,yardsticks"]

    def verified(*options: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main([*command, *options])
        return status, capsys.readouterr().out

    make_all = ["atlas", "make", "tiny.json", "--folder", "out", "--levels", "random,yardsticks", "--quiet"]
    assert main(make_all) == 0
    assert verified() == (
        0,
        "random 0: unrecorded\nrandom 1: unrecorded\nyardsticks 0: unrecorded\nyardsticks 1: unrecorded\n"
        "4 shards: 0 equal, 4 unrecorded\n",
    )
    assert main([*make_all, "--record"]) == 0
    assert verified() == verified("--again") == (0, "4 shards: 4 equal\n")
    assert main([*make_all, "--record", "--shards", "0"]) == 2
    assert "and those that are recorded (2), got 0" in capsys.readouterr().err

    path, good = Path("out/random/000001.parquet"), Path("out/random/000001.parquet").read_bytes()
    path.unlink()
    assert verified()[0] == 1
    assert "random 1: missing" in verified()[1]
    path.write_bytes(good[: len(good) // 2])
    assert "random 1: damaged" in verified()[1]
    table = pq.read_table(pa.BufferReader(good))
    changed = table.set_column(
        table.column_names.index("reward"), "reward", pa.compute.multiply(table["reward"], 1.0 + 1e-15)
    )
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    assert "random 1: damaged" in verified()[1]
    assert "other rewards" in verified()[1]
    path.write_bytes(Path("out/random/000000.parquet").read_bytes())
    assert "holds random 0" in verified()[1]
    path.write_bytes(good)

    plain = json.loads(Path("tiny.json").read_text())
    plain["hashes"]["random"][1] = "0" * 32
    Path("tiny.json").write_text(json.dumps(plain))
    status, text = verified()
    assert status == 1
    assert "random 1: different" in text
    assert "on another machine" in text
    assert "random 0" not in text
    plain["made_with"]["code"] = "of before"
    Path("tiny.json").write_text(json.dumps(plain))
    assert f"code {atlas_code()}, recorded of before" in verified()[1]
    assert f"code {atlas_code()}, recorded of before" in verified("--again")[1]
    assert main([*make_all[:-2], "random", "--record"]) == 2
    assert "needs all levels, as other code has recorded yardsticks" in capsys.readouterr().err
    plain["seed"] = 6
    Path("tiny.json").write_text(json.dumps(plain))
    assert "random 0: different: it was made of another manifest" in verified()[1]


def test_transitions_are_those_of_the_flows() -> None:
    manifest = written()
    with ThreadExecutor() as executor:
        make.make_shards(manifest, ["expert"], [0, 1], Path("runs/atlas/tiny"), executor)
    found = read_transitions(manifest, "expert")
    shards = [level(manifest, "expert", shard) for shard in (0, 1)]
    assert len(found.rewards) == sum(len(shard.rewards) for shard in shards)
    assert found.observations.shape == found.next_observations.shape == (len(found.rewards), len(DEFAULT_FEATURES))
    goes_on = ~(found.terminals | found.timeouts)[:-1]
    assert (found.next_observations[:-1] == found.observations[1:]).all(axis=1)[goes_on].all()
    first = shards[0]
    own = [manifest.spec.observation.features.index(name) for name in DEFAULT_FEATURES]
    length = int(first.lengths[0])
    assert (found.observations[:length] == first.observations[:length, own]).all()
    assert (found.next_observations[length - 1] == first.observations[length, own]).all()
    assert (found.observations[length] == first.observations[length + 1, own]).all()
    some = read_transitions(manifest, "expert", shards=[1], features=["log_bdp"])
    assert some.observations.shape == (len(shards[1].rewards), 1)
    with pytest.raises(ValueError, match="unknown feature 'bdp'"):
        read_transitions(manifest, "expert", features=["bdp"])
    with pytest.raises(FileNotFoundError, match="random"):
        read_transitions(manifest, "random")


def test_shards_of_another_manifest_or_code_are_not_read_as_those_of_this_one() -> None:
    manifest = written()
    folder = Path("runs/atlas/tiny")
    with ThreadExecutor() as executor:
        make.make_shards(manifest, ["expert"], [0, 1], folder, executor)
    features = manifest.spec.observation.features
    observation = dataclasses.replace(manifest.spec.observation, features=features[::-1])
    other = dataclasses.replace(manifest, spec=dataclasses.replace(manifest.spec, observation=observation))
    with pytest.raises(ValueError, match="another manifest"):
        read_transitions(other, "expert")
    path = shard_path(folder, "expert", 1)
    shard, facts = read_shard(path)
    path.write_bytes(to_parquet(shard, dataclasses.replace(facts, code="older"), manifest.recipe("expert")))
    assert len(read_transitions(manifest, "expert", shards=[1]).rewards)
    with pytest.raises(ValueError, match="other code: older"):
        read_transitions(manifest, "expert")


def test_regret_is_what_the_best_yardstick_has_more() -> None:
    manifest = written(levels={"constant": [{"action": [0.2, 0.3]}]})
    with ThreadExecutor() as executor:
        make.make_shards(manifest, manifest.kinds, [0], Path("runs/atlas/tiny"), executor)
    frame = regrets(manifest, "constant")
    shard = made(manifest, YARDSTICKS)
    assert frame.reward.tolist() == shard.rewards[:, 1].tolist()  # the yardstick `two` does the same
    assert frame.best.tolist() == shard.rewards.max(axis=1).tolist()
    assert (frame.regret >= 0).all()
    assert frame.yardstick.tolist() == [["bbr", "two"][best] for best in shard.rewards.argmax(axis=1)]


def test_the_regret_of_an_algorithm_is_of_all_its_steps_as_its_yardstick_is() -> None:
    manifest = written(levels={"algorithms": [{"algorithm": "bbr"}]})
    with ThreadExecutor() as executor:
        make.make_shards(manifest, manifest.kinds, [0], Path("runs/atlas/tiny"), executor)
    frame = regrets(manifest, "algorithms")
    assert frame.reward.tolist() == made(manifest, YARDSTICKS).rewards[:, 0].tolist()
    assert (frame.regret >= 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": {}}, "must have a level"),
        ({"levels": {"A b": [{"action": [0, 0]}]}}, "a level must have a name"),
        ({"levels": {"yardsticks": [{"action": [0, 0]}]}}, "a level must have a name"),
        ({"levels": {"one": []}}, "level one must be a list of behaviours"),
        ({"levels": {"one": [{}]}}, "level one: give one of action, policy and algorithm, got none"),
        ({"levels": {"one": [{"action": [0, 0], "policy": "x"}]}}, "got action, policy"),
        ({"levels": {"one": [{"action": [0, 2]}]}}, r"action must be in \[-1, 1\], got 2"),
        ({"levels": {"one": [{"action": "high"}]}}, "action must be a number or two, got 'high'"),
        ({"levels": {"one": [{"algorithm": "bbr9"}]}}, "unknown algorithm 'bbr9'"),
        ({"levels": {"one": [{"algorithm": "bbr", "noise": 1}]}}, "not for bbr"),
        ({"levels": {"one": [{"actoin": [0, 0]}]}}, "did you mean 'action'"),
        ({"levels": {"one": [{"policy": 3}]}}, "policy must be a name or a folder, got 3"),
        ({"levels": {"one": [{"action": [0, 0], "noise": None}]}}, "noise must be a number or two, got None"),
        ({"episodes": 0}, "episodes must be"),
        ({"seed": -1}, "seed must be"),
        ({"sed": 1}, "unknown key 'sed'"),
        ({"scenario": "famlies"}, "did you mean 'families'"),
        ({"scenario": {"flows": [{"algorithm": "bbr"}]}}, "must have a flow with algorithm 'agent'"),
        ({"hashes": []}, None),
        ({"hashes": {"random": "ab"}}, "hashes of random must be a list"),
        ({"levels": [1]}, "levels"),
        ({"yardsticks": [1]}, "yardsticks must be an object"),
        ({"reference": ["bdp"]}, "unknown feature 'bdp'"),
        ({"reference": 3}, "reference must be a list"),
        ({"env": {"step": 1}}, "env"),
    ],
)
def test_bad_manifests_are_explained(changes: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert written(**changes).hashes == {}
        return
    with pytest.raises(ValueError, match=message) as found:
        written(**changes)
    assert str(found.value).startswith("'tiny.json' is no manifest: ")


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"policy": "nowhere"}, "no trained agent in 'nowhere'"),
        ({"policy": "kernel"}, "no trained agent in 'kernel'"),
    ],
)
def test_bad_policies_are_explained(behaviour: dict[str, Any], message: str) -> None:
    with pytest.raises(FileNotFoundError, match=message):
        written(levels={"one": [behaviour]}).recipe("one")


def test_a_policy_must_fit_the_data_set() -> None:
    one = {"levels": {"one": [{"policy": "reference"}]}}
    with pytest.raises(ValueError, match="policy 'reference' has another action"):
        written(**one, action={}).recipe("one")
    with pytest.raises(ValueError, match="policy 'reference' has another step_ms"):
        written(**one, env={"step_ms": 50.0}).recipe("one")
    with pytest.raises(ValueError, match=r"policy 'reference' observes .*log_least_backlog"):
        written(**one, reference=[]).recipe("one")


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mkae", "families"], "did you mean 'make'"),
        (["make"], "give a data set"),
        (["make", "famlies"], "did you mean 'families'"),
        (["make", "nowhere.json"], "there is no manifest 'nowhere.json'"),
        (["make", "tiny.json", "--levels", "exprt"], "did you mean 'expert'"),
        (["make", "tiny.json", "--shards", "3-1"], "--shards must be"),
        (["make", "tiny.json", "--shards", "a"], "--shards must be"),
        (["make", "tiny.json", "--shards", "0-9999999"], "--shards must be"),
        (["make", "tiny.json", "--record", "--shards", "1"], "--record needs all shards from 0 on"),
        (["make", "tiny.json", "--again"], "--again is for `bbrgym atlas verify`"),
        (["verify", "tiny.json", "--minari"], "--minari is for `bbrgym atlas make`"),
        (["make", "tiny.json", "workers=2"], "executor"),
        (["make", "tiny.json", "executor.workers=0"], "executor.workers must be"),
        (["make", "tiny.json", "executor=rya"], "did you mean 'ray'"),
        (["make", "tiny.json", "executor.workers=["], "executor.workers=[: "),
        (["make", "tiny.json", "--folder", "tiny.json"], "is not a folder"),
        (["list", "famlies"], "did you mean 'families'"),
    ],
)
def test_bad_commands_are_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    written()
    assert main(["atlas", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_list_names_data_sets_and_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["atlas", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in manifest_names())
    written()
    assert main(["atlas", "list", "tiny.json", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["levels"]["expert"] == ["reference ± noise 0.05 ± offset 0.1, 0"]
    assert listed["yardsticks"] == ["bbr", "two"]


@pytest.mark.parametrize("name", manifest_names())
def test_manifests_of_the_package_are_whole(name: str) -> None:
    manifest = read_manifest(name)
    for kind in manifest.kinds:
        assert len(manifest.hashes[kind]) >= manifest.shards
        assert manifest.recipe(kind).drivers
    assert find_manifest(name).read_text() == manifest_text(json.loads(find_manifest(name).read_text()))


def test_a_recorded_data_set_is_made_again_on_any_processor() -> None:
    """Its hashes are the recorded ones, with and without fused multiply-add."""
    options = ["--levels", "random,mixed,expert", "--shards", "0", "--again", "executor.workers=1"]
    for tunables in ("", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable"):
        done = subprocess.run(
            [sys.executable, "-m", "bbrgym.cli", "atlas", "verify", "shared", *options],
            env=os.environ | {"GLIBC_TUNABLES": tunables, "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3" if tunables else ""},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, "3 shards: 3 equal\n"), done


@pytest.mark.parametrize("env", [{}, {"step_ms": 50}, {"step_ms": None, "step_rtts": 2}])
def test_the_environment_of_minari_has_the_steps_of_the_data_set(env: dict[str, Any]) -> None:
    manifest = written(env=env)
    with closing(_environment(manifest)) as made:
        _, info = made.reset(seed=1)
        scenario = made.get_wrapper_attr("scenario")
        time_s = made.step(np.zeros(2, np.float32))[4]["time_s"]
        assert info["time_s"] == 0
    # Of its own agent, whose flow alone has no policy.
    expected_ms = env.get("step_ms", 100.0) or 2 * scenario.flows[scenario.agent_flows[0]].rtt_ms
    assert time_s == pytest.approx(expected_ms / 1e3)


@pytest.mark.usefixtures("inline")
def test_minari_reads_the_same_flows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(Path("minari").absolute()))
    manifest = written()
    for _ in range(2):  # the second one replaces the first
        assert main(["atlas", "make", "tiny.json", "--levels", "random,yardsticks", "--minari", "--quiet"]) == 0
    dataset = minari.load_dataset("bbrgym/tiny/random-v0")
    shards = [level(manifest, "random", shard) for shard in (0, 1)]
    assert dataset.total_steps == sum(len(shard.rewards) for shard in shards)
    episodes = [*dataset.iterate_episodes()]
    assert np.concatenate([one.rewards for one in episodes]).tolist() == [
        reward for shard in shards for reward in shard.rewards.tolist()
    ]
    names = manifest.spec.observation.features
    own = shards[0].observations[: len(episodes[0].observations)]
    assert (episodes[0].observations == own[:, [names.index(name) for name in DEFAULT_FEATURES]]).all()
    reference = own[:, [names.index(name) for name in manifest.reference]]
    assert (episodes[0].infos["reference"] == reference).all()
    assert [bool(one.terminations[-1]) for one in episodes] == [
        bool(end) for shard in shards for end in shard.terminated[shard.lengths.cumsum() - 1]
    ]
    with closing(dataset.recover_environment()) as env:
        assert env.observation_space == dataset.spec.observation_space
