"""Other people's stacks across the Linux engine's bottleneck: `python -m studies.stacks`."""
