"""Learned agents: training, evaluation, policies and tracking."""
