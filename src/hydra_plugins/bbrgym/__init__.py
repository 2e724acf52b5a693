"""Plug-ins for Hydra: a launcher for one machine, a sweeper with Optuna, and one for named variants.

Hydra imports every module here that has no leading underscore whenever it starts: what is heavy is imported where it is
used. `hydra_plugins` itself has no `__init__.py`, because other packages have plug-ins in it too.
"""
