"""Which ends are met: those of `graphs.ends`, and those that depend on the position."""
