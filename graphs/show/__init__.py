"""A session as an HTML page, and pictures of conversations. Nothing here runs a model."""
