"""Fakes for tests: a disk in memory, faults and power cuts, a manual clock, seeded random numbers. Shipped for
users."""
