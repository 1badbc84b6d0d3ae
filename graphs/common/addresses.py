"""Checks of server addresses, and their display without secrets."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

OPENAI = "https://api.openai.com/v1"
"""OpenAI's own address, used if no other is set."""


def check_address(text: str) -> str:
    """Return a server's address without surrounding space, or raise an error if it is not valid."""
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
    """Return an address for display, without user, password and query values."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    query = re.sub(r"(?:([^&=]*=)|(?<![^&]))[^&]+", r"\1***", parts.query)
    where = parts._replace(netloc=f"***@{host}" if user else host, query=query, fragment="")
    return where.geturl()


def redact_address(url: str) -> str:
    """Return an address with any password in it replaced by `***`."""
    # A password that was not percent-encoded may contain @ or /, so everything up to the last @ is
    # replaced.
    url = re.sub(r"(?s)^([^:/?#]+://[^:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1***", url)


def is_loopback(url: str) -> bool:
    """Return whether an address points to this machine, without asking a name server."""
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
