"""A session as an HTML page, and drawings of conversations. No model runs here."""
