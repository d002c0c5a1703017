"""The epoch-grouped parallel write-ahead log."""
