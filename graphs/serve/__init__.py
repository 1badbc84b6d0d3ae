"""Servers that offer conversations to programs, such as the clients of MCP."""
