"""The commands that run batches, and show how they stand."""
