"""Offline learning from a data set of the atlas: one file per algorithm (docs/atlas.md)."""
