"""The report of a batch as an HTML page: its figures, its scores with intervals, and its cells."""
