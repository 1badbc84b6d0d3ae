"""The client of OpenAI's API, and the HTTP under it."""
