"""The log of a conversation: messages, their metadata, and the views on them."""
