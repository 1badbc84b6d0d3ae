"""What conversations name and no file can hold: tools, functions, hooks, schemas."""
