"""What makes a broker of backing queues: actors that expire, bound and dead-letter, restarted when they fail."""
