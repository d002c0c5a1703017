"""Exchanges: where a message goes by its exchange, routing key and headers. Pure rules over catalog rows, no I/O."""
