"""What a sentence says of a word in it. Pure functions."""
