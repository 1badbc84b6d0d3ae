"""A batch as one HTML page: its figures, its scores with their intervals, and its cells."""
