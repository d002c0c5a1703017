"""What is done for each method of a client."""
