"""What a broker is told by its command line, its environment and rabbitmq.conf, made into settings."""
