"""The kernel's TCP with the gains of a policy: its cost, and how close it is to native. See `__main__`."""
