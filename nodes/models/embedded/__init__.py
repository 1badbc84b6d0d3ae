"""The embedded model, in a child process."""
