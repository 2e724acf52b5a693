from __future__ import annotations

import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"mlflow": "mlflow"}


def test_client_and_pyfunc_model(recipe: Recipe) -> None:
    """search_runs and get_metric_history on the database of a training; the pyfunc model."""
    (train,), (read,) = recipe.shell, recipe.python
    recipe.run_shell(train)
    names = recipe.run_python(read)
    assert len(names["runs"]) == 1
    assert names["history"][-1].value == names["runs"].loc[0, "metrics.eval/reward"]
    assert names["actions"].shape == (3, 2)
    assert abs(names["actions"]).max() <= 1
