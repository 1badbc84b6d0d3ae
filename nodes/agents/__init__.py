"""Agents of the user's own that speak: compiled graphs, and other Runnables of LangChain's."""
