"""What is done with a whole log at once, spread over Spark's tasks: compact, snapshot, export, verify."""
