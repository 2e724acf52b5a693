"""Engines whose simulator is in a process of its own."""
