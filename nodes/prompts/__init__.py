"""Every text that is sent to a model."""
