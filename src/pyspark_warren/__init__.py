"""Registers the format: Spark imports top-level modules `pyspark_*` and takes their `DefaultSource`."""

from warren.pipeline.source import WarrenSource as DefaultSource

__all__ = ["DefaultSource"]
