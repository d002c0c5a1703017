"""In what order messages stand in each queue, which are gone, and why: rows and records of the message stream."""
