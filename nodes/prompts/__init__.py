"""What duologue itself says to a model; the prompts of a conversation kind stand in its module."""
