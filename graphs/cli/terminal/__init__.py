"""What a terminal shows, and what is typed there."""
