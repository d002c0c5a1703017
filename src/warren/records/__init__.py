"""Blocks: the unit of writing, checksumming and reading. Bytes: docs/formats/block.md."""
