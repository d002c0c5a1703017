"""Where a message goes: what its exchange, routing key and headers come to. Plain rules over plain rows, no I/O."""
