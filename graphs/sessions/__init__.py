"""What is done with stored sessions."""
