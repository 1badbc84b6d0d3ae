"""How a message is read by the form that it has."""
