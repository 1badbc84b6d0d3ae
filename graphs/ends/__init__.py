"""Everything that ends a conversation: an end or a guard is one class, in one module."""
