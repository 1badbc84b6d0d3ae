"""Public API: conversations, their kinds, and the functions that run them.

``__init__.pyi`` lists the public names with their modules. A module is imported when one of its
names is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
