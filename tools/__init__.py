"""What a speaker may call."""
