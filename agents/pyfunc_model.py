"""A trained agent as a model of MLflow. A copy of this file is in every one of them, and runs when it is loaded.

So nothing is pickled: a model is this code and the agent's own folder (agent.json, policy.npz), and it needs bbrgym,
numpy and MLflow, but no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import Array


class AgentModel(PythonModel):  # type: ignore[misc]  # MLflow is not analysed, see pyproject.toml
    """Predicts what `Agent.predict` does: for observations of shape (N, length) actions in [-1, 1], (N, 2), float32.

    A recurrent agent remembers what it saw in each of the N rows, from one call to the next, and two flows that are
    driven by one loaded model in turn would mix their memories. Give `params={"reset": True}` with the first
    observations of new episodes.
    """

    _agent: Agent

    def load_context(self, context: Any) -> None:
        """Load the agent from the model's artifacts."""
        self._agent = load_agent(context.artifacts["agent"])

    # MLflow makes a schema of annotations, and the model has a better one: it leaves the bare type alone.
    def predict(
        self,
        context: Any,
        model_input: np.ndarray,
        params: Mapping[str, Any] | None = None,
    ) -> Array:
        """The most likely actions, after a reset if `params` says so."""
        if params is not None and params.get("reset", False):
            self._agent.reset()
        return self._agent.predict(model_input)


set_model(AgentModel())
