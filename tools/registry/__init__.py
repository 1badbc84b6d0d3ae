"""Registry of the tools, functions, hooks and schemas that conversations name."""
