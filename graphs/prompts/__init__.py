"""The texts that duologue itself sends to models, whatever the kind of conversation."""
