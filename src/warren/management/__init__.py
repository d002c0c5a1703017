"""Management: the HTTP API in RabbitMQ's shape, a local socket for commands, and metrics."""
