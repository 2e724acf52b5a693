"""Starts the worker without importing the rest of the package: `python -P start_worker.py <worker's arguments>`.

`bbrgym/__init__.py` and `bbrgym/envs/__init__.py` import numpy, pandas and gymnasium: ten times the worker's own start.
So bare packages of the same names stand in for them, which know this folder and nothing else. That works from a
checkout, an editable install and a wheel alike, because all that is asked for lies beside this file.
"""

import sys
from pathlib import Path
from types import ModuleType


def _enter_bare_packages() -> None:
    envs = Path(__file__).parents[1]
    folders = {"bbrgym": [], "bbrgym.envs": [], "bbrgym.envs.ns3": ["ns3"], "bbrgym.envs.ns3gym": ["ns3gym"]}
    for name, inside in folders.items():
        package = ModuleType(name)
        package.__path__ = [str(envs / folder) for folder in inside]
        sys.modules[name] = package


if __name__ == "__main__":
    _enter_bare_packages()
    from bbrgym.envs.ns3.worker import main

    main(sys.argv[1:])
