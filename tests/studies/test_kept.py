from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from studies.kept import finished, keep


@dataclass(frozen=True)
class Job:
    name: str
    code: str = "new"


def test_a_result_is_found_by_its_job_and_its_code(tmp_path: Path) -> None:
    path = tmp_path / "page" / "jobs.parquet"
    short, long = Job("short"), Job("long")
    assert finished(path, [short, long]) == {}
    keep(path, long, {"reward": -0.5, "curve": [(0, -1.0), (100, -0.5)]})
    keep(path, short, {"reward": -0.1})
    found = finished(path, [short, long, Job("other")])
    assert {job: result["reward"] for job, result in found.items()} == {short: -0.1, long: -0.5}
    assert [tuple(point) for point in found[long]["curve"]] == [(0, -1.0), (100, -0.5)]


def test_a_result_of_other_code_is_not_found_and_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    keep(path, Job("one", "old"), {"reward": 1.0})
    keep(path, Job("two", "old"), {"reward": 2.0})
    assert finished(path, [Job("one")]) == {}
    keep(path, Job("one"), {"reward": 3.0})
    assert [result["reward"] for result in finished(path, [Job("one"), Job("one", "old")]).values()] == [3.0]
    assert finished(path, [Job("two", "old")])


def test_results_kept_at_once_are_all_kept(tmp_path: Path) -> None:
    path, jobs = tmp_path / "jobs.parquet", [Job(f"job {number}") for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: keep(path, job, {"reward": 1.0}), jobs))
    assert set(finished(path, jobs)) == set(jobs)
