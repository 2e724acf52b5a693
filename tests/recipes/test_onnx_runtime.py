from __future__ import annotations

import numpy as np
from recipe_page import Recipe

from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE

PACKAGES = {"onnxruntime": "onnxruntime", "onnx": "onnx"}


def test_inference(recipe: Recipe) -> None:
    """InferenceSession of the shipped policy, against Agent.predict."""
    (export,), (infer,) = recipe.shell, recipe.python
    recipe.run_shell(export)
    names = recipe.run_python(infer)
    np.testing.assert_allclose(names["actions"], load_agent(REFERENCE).predict(names["observations"]), atol=1e-5)
    assert names["meaning"]["observation"]
