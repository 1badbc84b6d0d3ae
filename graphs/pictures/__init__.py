"""Pictures of conversations: what may follow what."""
