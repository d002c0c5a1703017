"""Contents that are too large, or shared by too many, for a queue's own rows: written once, counted, collected."""
