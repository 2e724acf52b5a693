"""Starts the worker without importing the rest of the package: `python -P start.py <worker's arguments>`.

`bbrgym/__init__.py` and `bbrgym/envs/__init__.py` import numpy and gymnasium, which takes several times as long as
the worker's own start. Bare packages of the same names, which find the worker's folders only, take their place. This
works from a checkout, an editable install and a wheel alike: everything the worker needs is beside this file.
"""

import sys
from pathlib import Path
from types import ModuleType


def enter_bare_packages() -> None:
    """Put bare packages in the place of bbrgym's."""
    envs = Path(__file__).parents[1]
    folders = {"bbrgym": [], "bbrgym.envs": [], "bbrgym.envs.worker": ["worker"], "bbrgym.envs.ns3gym": ["ns3gym"]}
    for name, inside in folders.items():
        package = ModuleType(name)
        package.__path__ = [str(envs / folder) for folder in inside]
        sys.modules[name] = package


if __name__ == "__main__":
    enter_bare_packages()
    from bbrgym.envs.worker.worker import main

    main(sys.argv[1:])
