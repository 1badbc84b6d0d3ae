"""Batches: many sessions of one conversation, each with different values in some fields."""
