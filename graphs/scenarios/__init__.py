"""Tests of agents by simulated users: scenarios, simulations, and the verdicts about them.

``__init__.pyi`` lists the public names with their modules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
"""Public names of `duologue.graphs.scenarios`, with the modules that define them."""
