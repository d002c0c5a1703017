"""Catalog: vhosts, exchanges, queues, bindings, users and permissions; in the log, and projected to SQL."""
