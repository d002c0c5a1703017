"""Found by Spark under this name: a top-level module `pyspark_*` with a `DefaultSource` registers its format."""

from warren.pipeline.source import WarrenSource as DefaultSource

__all__ = ["DefaultSource"]
