"""Benchmarks: what is measured, beside what, against which goals. Run by `warren bench`; read docs/benchmarks.md."""
