"""The safe snapshot store: what stays long leaves the log, in version order, for a store that reads by key."""
