"""Addresses of sources: which of them are no local files, and that none contains a secret."""

import re
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from darklode.pipeline.base.errors import InputError

AddressKind = Literal["database", "engine", "hub", "objects"]

DATABASES = frozenset({"postgresql", "postgres", "mysql", "mariadb", "sqlite", "duckdb", "mssql", "oracle"})
ENGINES = frozenset({"opensearch", "elasticsearch"})

_SECRET_OPTION = re.compile(r"passw|pwd|token|secret|api_?key|^key$", re.IGNORECASE)
"""Options that hold a secret in some driver or server; an address is recorded, so it must not have them."""
_SECRET_VALUE = re.compile(r"\b(pwd|password)\s*=", re.IGNORECASE)
"""A secret in the value of an option, such as `odbc_connect`."""

_SCHEME = re.compile(r"([a-z][a-z0-9]*)(?:\+([a-z][a-z0-9_]*))?:/", re.IGNORECASE)


def address_kind(path: str) -> AddressKind | None:
    """What an address points to; None for a path of a local file or folder, and for unknown schemes."""
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    if scheme in DATABASES:
        return "database"
    if scheme in ENGINES:
        return "engine"
    return {"hf": "hub", "s3": "objects"}.get(scheme)  # type: ignore[return-value]


def check_source(path: str) -> None:
    """Check that an address is valid and contains no secret, because runs and logs record it.

    Raises:
        InputError: it is invalid, or contains a password, a key or, for an engine, a user name.
    """
    kind, scheme = address_kind(path), path.partition(":")[0]
    try:
        parts = urlsplit(path)
        has_port_or_none = parts.port is None or parts.port > 0
    except ValueError:  # what follows the colon is no port: perhaps a password
        has_port_or_none = False
    if not has_port_or_none:
        raise InputError(f"{scheme}://…: the address has no valid host and port; it must not contain a password")
    has_secret = parts.password is not None or (kind != "database" and parts.username is not None)
    if has_secret or any(_is_secret(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True)):
        variable = "password_env" if kind == "database" else "api_key_env"
        raise InputError(
            f"{scheme}://{parts.hostname or ''}: the address must not contain a password or key; put it into an "
            f"environment variable and name that with ?{variable}=NAME"
        )


def _is_secret(option: str, value: str) -> bool:
    is_secret_name = _SECRET_OPTION.search(option) is not None and not option.endswith("_env")
    return is_secret_name or _SECRET_VALUE.search(value) is not None
