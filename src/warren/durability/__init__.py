"""Durability: epochs, and how they are closed, synced, recorded and chained."""
