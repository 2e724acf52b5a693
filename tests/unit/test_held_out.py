"""The suites that no training and no choice between agents may use."""

from importlib import resources
from pathlib import Path

import pytest

from bbrgym.cli import main

HELD_OUT = ("rfc9743", "responsiveness")
CHECKOUT = Path(__file__).parents[2]
CONF = Path(str(resources.files("bbrgym.conf")))


@pytest.mark.parametrize("experiment", HELD_OUT)
def test_it_cannot_be_trained_on(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", f"experiment={experiment}"]) == 1
    assert f"experiment={experiment} belongs to bbrgym benchmark, not to train" in capsys.readouterr().err


@pytest.mark.parametrize("experiment", HELD_OUT)
def test_nothing_that_trains_or_chooses_names_it(experiment: str) -> None:
    own = CONF / "experiment" / f"{experiment}.yaml"
    assert "no training and no choice between agents may use" in " ".join(own.read_text().replace("#", " ").split())
    files = [*CONF.rglob("*.yaml"), *(CHECKOUT / "agents").rglob("*.py")]
    assert len(files) > 50
    for file in files:
        if file.suffix in (".py", ".yaml") and file != own:
            assert experiment not in file.read_text(encoding="utf-8"), file
