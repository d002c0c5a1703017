"""Queues: one protocol, and everything that keeps it, in memory, bounded, prioritised or mirrored."""
