"""The command line: one command per file, options from annotations, every option in docs/operations.md."""
