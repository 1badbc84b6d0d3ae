"""The kinds of conversation that have a short form, a module each."""

from pkgutil import iter_modules


def list_kinds() -> list[str]:
    """Return the kinds, which are called like their modules. None of these is imported."""
    names = [module.name for module in iter_modules(__path__)]
    return [name for name in names if name not in ("load", "short_form")]
