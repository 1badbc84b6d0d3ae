"""The client for OpenAI's API, and the HTTP client below it."""
