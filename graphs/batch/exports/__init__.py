"""A batch written down: rows for tables, and data sets to train models on."""
