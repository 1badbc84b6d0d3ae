"""Addresses of servers: checking them, showing them without secrets, finding local ones."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

OPENAI = "https://api.openai.com/v1"
"""OpenAI's own, where calls go when no address is set."""


def check_address(text: str) -> str:
    """Make sure that a text is the address of a server, and strip the space around it."""
    text = text.strip()
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    try:
        parts = urlsplit(text)
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be an address such as http://localhost:8000/v1")
    return text


def show_address(url: str) -> str:
    """Return an address as users may see it: with no user and password, no value of its query."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    query = re.sub(r"(?:([^&=]*=)|(?<![^&]))[^&]+", r"\1***", parts.query)
    where = parts._replace(netloc=f"***@{host}" if user else host, query=query, fragment="")
    return where.geturl()


def redact_address(url: str) -> str:
    """Return an address with any password in it replaced by `***`."""
    # A password that was not percent-encoded may hold @ or /: all up to the last @ is replaced.
    url = re.sub(r"(?s)^([^:/?#]+://[^:@/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1***", url)


def is_loopback(url: str) -> bool:
    """Whether an address leads to this machine, whatever a name server says."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if set("@\\%") & set(parts.netloc):
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
