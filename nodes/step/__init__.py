"""What each step of the graph shares."""
