"""Pages, pictures, Markdown and training sets, made of a session. Nothing here runs a model."""
