"""The kinds of conversation that have a short form, one module each."""

from pkgutil import iter_modules


def list_kinds() -> list[str]:
    """Return the names of the kinds, which are their modules' names, without an import."""
    names = [module.name for module in iter_modules(__path__)]
    return [name for name in names if name not in ("load", "short_form")]
