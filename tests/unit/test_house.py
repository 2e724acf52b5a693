"""What one more algorithm, feature, term, field, option or study costs: `make house`."""

import subprocess
from pathlib import Path

import house
import pytest

COSTS = house.cost_of_one_more()


@pytest.mark.parametrize("what", house.ONE_MORE)
def test_one_more_takes_few_files(what: str) -> None:
    _, most = house.ONE_MORE[what]
    assert 1 <= len(COSTS[what]) <= most, COSTS[what]


def test_every_file_counts_once_and_pictures_and_generated_files_do_not() -> None:
    counts = house.lines_by_feature()
    assert all(counts.values())
    done = subprocess.run(["git", "grep", "-Ic", ""], cwd=Path(house.ROOT), capture_output=True, text=True, check=True)
    text = [line.rpartition(":") for line in done.stdout.splitlines()]
    assert sum(counts.values()) < sum(int(count) for _, _, count in text)
    assert not any(file.endswith((".png", ".parquet", ".npz")) for file, _, _ in text)


def test_the_reading_radius_is_of_direct_imports() -> None:
    radius = house.reading_radius()
    assert radius["envs/mahimahi.py"] < radius["benchmark/run.py"] < radius["src/bbrgym/cli.py"]
