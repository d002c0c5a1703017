"""What there is to send to and to read from, and who may: vhosts, queues, users and more, in SQL, made from the log."""
