"""Jobs on a whole log, distributed over Spark tasks: compact, snapshot, export, sync, verify."""
