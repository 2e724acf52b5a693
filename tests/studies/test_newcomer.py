from bbrgym.envs import environment_ids
from studies.newcomer import Job, environment_hash, table


def test_every_id_has_a_hash_that_is_of_its_environment() -> None:
    hashes = {id: environment_hash(id) for id in environment_ids()}
    assert hashes["bbrgym/Bottleneck-v1"] == hashes["bbrgym/Default-v1"]
    assert len(set(hashes.values())) == len(hashes) - 1


def test_a_learner_is_above_what_is_simple_in_the_mean_of_its_seeds() -> None:
    single, lossy = "bbrgym/Single-v1", "bbrgym/Lossy-v1"
    results = {
        Job(single, "ppo", "1"): -0.1, Job(single, "ppo", "2"): -0.3,
        Job(single, "constant", "0,0"): -0.25, Job(single, "algorithm", "bbr"): -0.4,
        Job(lossy, "ppo", "1"): -0.3, Job(lossy, "constant", "0,0"): -0.5, Job(lossy, "algorithm", "vegas"): -0.2,
    }  # fmt: skip
    rows, summary = table([single, lossy], {job: {"reward": reward} for job, reward in results.items()})
    assert "ppo in 1 of 2 ids." in summary
    assert "sac" not in summary
    (row,) = [line for line in rows.splitlines() if line.startswith("| Single-v1")]
    assert "-0.200 [-0.300] (2)" in row
    assert "-0.250 (0,0)" in row
