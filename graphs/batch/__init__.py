"""Batches: many sessions of one conversation, each with other values in some fields."""
