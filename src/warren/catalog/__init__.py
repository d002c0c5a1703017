"""What there is to send to and to read from: vhosts, exchanges, queues and bindings, in SQL, made from the log."""
