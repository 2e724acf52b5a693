"""Plug-ins for Hydra: a launcher for one machine, a sweeper with Optuna, and one for named variants.

Hydra imports every module here without a leading underscore at each start, so they import heavy dependencies where they
use them. `hydra_plugins` itself has no `__init__.py`, because other packages have plug-ins in it too.
"""
