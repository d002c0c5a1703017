"""Message store: contents too large or too widely shared for the queue index, written once and garbage-collected."""
