"""Write the policies of a search, generation by generation: `python -m studies.generations RUN FOLDER 0,1,2,4`.

RUN is the folder of a training with agent=cma. Its newest checkpoint has the fitness of all candidates, with which the
search is repeated without its episodes. The policy of a generation is the mean of the distribution after it, in
FOLDER/00, FOLDER/01 and so on. Those of the atlas, conf/atlas/search, are of `bbrgym train
experiment=recogniser_task agent=cma scenario=families` with the features of their agent.json, agent.population=16,
agent.scenarios=12 and train.total_steps=14000000.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from bbrgym.agents.checkpoint_names import checkpoint_folder, saved_steps
from bbrgym.agents.config import SearchConfig
from bbrgym.agents.provenance import source_tags
from bbrgym.agents.search import WeightSearch
from bbrgym.baselines.policy_file import StoredPolicy
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.files import read_object
from bbrgym.output import run_program


def main() -> int:
    """Write the policies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of the training")
    parser.add_argument("folder", type=Path, help="where the policies are written")
    parser.add_argument("generations", help="which, with commas; 0 is before the first one")
    options = parser.parse_args()
    chosen = [int(text) for text in options.generations.split(",")]
    config: Any = OmegaConf.to_container(OmegaConf.load(options.run / ".hydra" / "config.yaml"), resolve=True)
    spec, seed = EpisodeSpec.from_config(config), int(config["seed"])
    agent = {name: value for name, value in config["agent"].items() if name != "algorithm"}
    steps = saved_steps(options.run)[0]
    checkpoint = checkpoint_folder(options.run, steps)
    made_with = {name: text for name, text in source_tags().items() if name != "host"}
    with closing(WeightSearch(SearchConfig(**agent), spec, seed)) as search:
        search.restore(checkpoint, read_object(checkpoint / "checkpoint.json"))
        networks = search.history()
    # The traces of its distribution would make each file large, and a policy does not depend on its scenario.
    plain = {**spec.to_config(), "scenario": {"flows": [{"algorithm": "agent"}]}}
    for generation in chosen:
        training = {
            "algorithm": "cma",
            "steps": steps * generation // (len(networks) - 1),
            "seed": seed,
            "made_with": made_with,
            "licence": "MIT",
        }
        policy = StoredPolicy(plain, networks[generation], training)
        policy.save(options.folder / f"{generation:02d}")
    return 0


if __name__ == "__main__":
    sys.exit(run_program("generations", main))
