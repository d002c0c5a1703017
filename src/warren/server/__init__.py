"""The AMQP server: sockets, logins, channels; one event loop."""
