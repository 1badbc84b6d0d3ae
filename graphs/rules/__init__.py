"""The rules: who speaks next, when it ends and why. Pure functions."""
