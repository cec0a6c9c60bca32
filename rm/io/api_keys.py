"""API keys and tokens of servers: reading, validation, and the HTTP header."""

import os

from ..errors import UsageError


def clean_token(token: str | None, source: str = "the token") -> str | None:
    """Strip a token; return None if it is empty.

    Raise `UsageError`, whose message omits the token, if it contains control characters.
    """
    token = (token or "").strip()
    if not token.isprintable():
        raise UsageError(f"{source} has a line break or a control character within it; give a token of one line")
    return token or None


def environment_key(variable: str) -> str:
    """Return the API key in an environment variable, checked by `clean_token`; empty if there is none."""
    source = f"the API key in {variable}"
    key = clean_token(os.environ.get(variable), source) or ""
    if not key.isascii():
        raise UsageError(f"{source} has a character beyond ASCII, such as a typographic quote; copy the key again")
    return key


def authorization(key: str | None) -> dict[bytes, bytes]:
    """Return the header of requests with a key; no header without one."""
    return {b"authorization": f"Bearer {key}".encode()} if key else {}
