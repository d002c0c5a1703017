"""Queue index: the order of messages in each queue, which are gone, and why: rows and records of the message stream."""
