"""Access control of servers: refuse remote requests without a token, and requests from pages of other sites."""

import socket
from collections.abc import Collection, Mapping
from urllib.parse import SplitResult, urlsplit

from ...rm.errors import UsageError
from ...rm.io.server_rotation import LOCAL


def check_reach(host: str, token: str | None, opened: str) -> None:
    """Raise an error if other machines can reach the address `host` and there is no token.

    `opened` completes the message "--host HOST lets other machines ...", for example "read these runs".
    """
    if host not in LOCAL and not token:
        raise UsageError(
            f"--host {host} lets other machines {opened}; set a password with --token, or leave --host out"
        )


def refusal_reason(headers: Mapping[str, str], hosts: Collection[str] | None = None) -> str:
    """Return why the origin of a request is forbidden. Empty if the request is allowed.

    `hosts` are the accepted host names of the server, to prevent DNS rebinding. None accepts any host name, for servers
    with a password.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    address = _split(f"//{host}")
    if hosts is not None and (address is None or address.hostname not in hosts):
        return f"this server is not called '{host}'"
    if origin is not None:
        site = _split(origin)
        if site is None or site.netloc.lower() != host.lower():
            return f"'{origin}' may not ask this server"
    return ""


def _split(address: str) -> SplitResult | None:
    try:
        return urlsplit(address)
    except ValueError:
        return None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port, or on a free port for 0. Connections wait until they are accepted."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        return socket.create_server((address[0], port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error}); choose another port with --port, or a free one with --port 0"
        ) from error


def free_port(host: str, port: int) -> int:
    """Return the port if it is available. For port 0, return a free port."""
    with listen(host, port) as probe:
        return probe.getsockname()[1]


def address(host: str, port: int) -> str:
    """Return the URL of a local server. IPv6 addresses are put in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
