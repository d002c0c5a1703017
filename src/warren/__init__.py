"""Warren: a durable message broker on a log-structured transactional store."""

__version__ = "0.1.0"
