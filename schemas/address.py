"""What an address of a server may be."""

from urllib.parse import urlsplit


def holds_secret(url: str) -> bool:
    """Whether a user name, a password or a query stands in it: where keys get written by mistake."""
    parts = urlsplit(url)
    return "@" in parts.netloc or bool(parts.query)


def host_and_path(url: str) -> str | None:
    """Host, port and path without a slash at the end; None where it is no http or https address."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    return parts.netloc + parts.path.rstrip("/")
