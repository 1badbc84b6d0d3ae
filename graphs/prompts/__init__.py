"""The texts that duologue itself sends to models in every kind of conversation."""
