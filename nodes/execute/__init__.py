"""Execution of a speaker's calls: tools, and code."""
