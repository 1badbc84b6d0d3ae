"""Sessions written down for readers and for programs."""
