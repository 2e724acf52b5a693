"""The ledger: what is measured is kept, exactly, and measured again only by other code."""

from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import ExecutorInThisProcess
from ledger_jobs import NumberedJob, square

from bbrgym.benchmark import ledger
from bbrgym.benchmark.ledger import CacheLedger, Entry, Ledger, ParquetLedger, Rows, measure, measure_each
from bbrgym.envs.engine import EngineError

JOBS = [NumberedJob(2), NumberedJob(5)]


@pytest.fixture(params=["parquet", "cache"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Ledger]:
    """Return what opens a ledger anew, as another process does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return {"parquet": lambda: ParquetLedger(tmp_path / "new" / "runs.parquet"), "cache": lambda: CacheLedger("jobs")}[
        request.param
    ]


def counted(done: list[str]) -> Callable[[NumberedJob], Rows]:
    def work(job: NumberedJob) -> Rows:
        done.append(job.name)
        return square(job)

    return work


def test_what_is_kept_is_not_measured_again(place: Callable[[], Ledger]) -> None:
    done: list[str] = []
    first = measure(counted(done), JOBS, place(), ExecutorInThisProcess())
    again = measure(counted(done), [*JOBS, NumberedJob(7)], place(), ExecutorInThisProcess())
    assert done == ["2", "5", "7"]
    assert first == {job.name: square(job) for job in JOBS}
    assert again == first | {"7": square(NumberedJob(7))}


def test_other_code_measures_again(place: Callable[[], Ledger]) -> None:
    done: list[str] = []
    for version in ("a", "b", "b"):
        measure(counted(done), [NumberedJob(2, version)], place(), ExecutorInThisProcess())
    assert done == ["2", "2"]


def test_a_job_that_fails_is_tried_again_and_the_others_are_kept(place: Callable[[], Ledger]) -> None:
    for _ in range(2):
        with pytest.raises(EngineError, match=r"1 of 3 jobs failed.*-1: ValueError: negative"):
            measure(square, [NumberedJob(-1), *JOBS], place(), ExecutorInThisProcess())
    done: list[str] = []
    measure(counted(done), JOBS, place(), ExecutorInThisProcess())
    assert done == []


def test_a_result_that_is_not_to_be_kept_is_measured_again(place: Callable[[], Ledger]) -> None:
    for _ in range(2):
        ended = measure_each(
            square, JOBS, place(), ExecutorInThisProcess(), is_kept=lambda job, rows: rows[0]["square"] > 4
        )
        assert {one.task.name: one.value for one in ended} == {job.name: square(job) for job in JOBS}
    assert place().load(JOBS).keys() == {"5"}


def test_a_measurement_that_is_left_early_keeps_what_came(place: Callable[[], Ledger]) -> None:
    ended = measure_each(square, JOBS, place(), ExecutorInThisProcess(), chunk_s=0)
    first = next(ended).task.name
    ended.close()
    assert place().load(JOBS).keys() == {first}


def test_results_are_kept_while_others_are_measured(
    place: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "FLUSH_S", 0.0)

    def work(job: NumberedJob) -> Rows:
        if job.number == 9:
            raise KeyboardInterrupt
        return square(job)

    jobs = [NumberedJob(number) for number in range(10)]
    with pytest.raises(KeyboardInterrupt):
        measure(work, jobs, place(), ExecutorInThisProcess(), chunk_s=0)
    assert {"0", "1", "2", "3"} <= set(place().load(jobs))


def test_two_processes_can_keep_results_in_one_file(tmp_path: Path) -> None:
    one, other = (ParquetLedger(tmp_path / "runs.parquet") for _ in range(2))
    one.keep({"2": Entry("a", square(JOBS[0]))})
    other.keep({"5": Entry("a", square(JOBS[1]))})
    assert set(one.load(JOBS)) == {"2", "5"}


def test_a_damaged_file_of_the_cache_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = CacheLedger("jobs")
    measure(square, JOBS, cache, ExecutorInThisProcess())
    for path in tmp_path.rglob("a*.json"):
        path.write_text("[{")
    assert cache.load(JOBS) == {}
