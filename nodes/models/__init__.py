"""The models that speak: found by name, asked, and read."""
