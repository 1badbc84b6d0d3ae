"""The stores of sessions and batches."""
