"""Hooks, and the types that tools and functions receive.

The public names and their modules are in ``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
