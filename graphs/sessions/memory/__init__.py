"""What a speaker remembers, and whole sessions: dump, load, reset, copy and export."""
