"""What a speaker may call, and where functions of the user's own step in.

The names and where they are stand in ``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
