"""Handlers of the methods that clients send."""
