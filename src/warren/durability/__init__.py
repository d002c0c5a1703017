"""One durability clock: epochs, how they are closed, synced, witnessed and chained."""
