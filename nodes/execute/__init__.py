"""Running what a speaker has called: tools, and code."""
