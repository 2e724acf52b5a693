"""Offline data that can be made again: a manifest and a seed give the same bits on every machine (docs/atlas.md)."""
