"""What the command line does with conversations in files: write, check and draw them."""
