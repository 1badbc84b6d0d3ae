"""How results and specs show themselves, in notebooks and with rich in a console."""
