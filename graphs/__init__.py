"""What a conversation is, each kind of it, and how one is run: the public API.

The names and where they are stand in ``__init__.pyi``. A module is imported when a name of it is
first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
