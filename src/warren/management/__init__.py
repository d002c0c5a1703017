"""The server as its operators see it: an HTTP API in RabbitMQ's shape, a socket for commands, and metrics."""
