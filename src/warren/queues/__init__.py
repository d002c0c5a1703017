"""Backing queues: the variable queue in front, other kinds in `kinds`."""
