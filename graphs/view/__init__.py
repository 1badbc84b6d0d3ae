"""A local page in the browser that lists sessions, follows them, answers them and stops them."""
