"""Running code that nobody trusts."""
