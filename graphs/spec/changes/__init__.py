"""How a spec is made by changes to another one, or to what a short form fills in, and compared."""
