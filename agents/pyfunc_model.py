"""A trained agent as an MLflow model. Every logged model contains a copy of this file, which runs when it is loaded.

So nothing is pickled: a model is this code and the agent's own folder (agent.json, policy.npz), and it needs bbrgym,
numpy and MLflow, but not torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import Array


class AgentModel(PythonModel):  # type: ignore[misc]  # MLflow is not type-checked, see pyproject.toml
    """Predicts as `Agent.predict`: from observations (N, length) to actions in [-1, 1], shape (N, 2), float32.

    A recurrent agent remembers what it saw in each of the N rows from one call to the next, so alternating between two
    flows with one loaded model would mix their memories. Pass `params={"reset": True}` with the first observations of
    new episodes.
    """

    _agent: Agent

    def load_context(self, context: Any) -> None:
        """Load the agent from the model's artifacts."""
        self._agent = load_agent(context.artifacts["agent"])

    # MLflow derives a schema from a more exact annotation of model_input, in place of the model's signature.
    def predict(self, context: Any, model_input: np.ndarray, params: Mapping[str, Any] | None = None) -> Array:
        """Return the most likely actions, after a reset if `params` asks for it."""
        if params is not None and params.get("reset", False):
            self._agent.reset()
        return self._agent.predict(model_input)


set_model(AgentModel())
