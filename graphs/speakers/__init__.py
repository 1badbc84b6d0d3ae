"""What a speaker is, as data."""
