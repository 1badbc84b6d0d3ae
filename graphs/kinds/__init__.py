"""The kinds of conversation that have a short form, a module each."""
