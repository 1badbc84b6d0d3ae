"""Reading stored specs. Sessions store theirs, so each change of its shape comes with a step."""

from typing import Any, Final

from ..common.validation import check_depth, validated
from ..common.versions import Migration, Versions, upgraded
from .conversation import Conversation

SPEC_VERSIONS: Final = Versions[Migration](oldest=12)
"""The versions of a spec; the newest is `SPEC_VERSION`."""


def migrated(data: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Bring a spec to the version of this release."""
    return upgraded(data, SPEC_VERSIONS, where)


def restored(data: dict[str, Any], where: str = "") -> Conversation:
    """Make a conversation out of a stored spec, of this or an older version."""
    check_depth(data, where)
    return validated(Conversation, migrated(data, where), where)
