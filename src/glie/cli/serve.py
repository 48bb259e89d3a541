"""The verbs that serve an index to browsers, programs and assistants."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glie.cli.shared import IndexPath
from glie.cli.terminal import output, print_json
from glie.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import uvicorn

MEGABYTE = 1 << 20
LIMITS = "Limits"


def serve(
    index_path: IndexPath,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="NUMBER", help="0 picks a free one.", min=0, max=65535)
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="GLIE_TOKEN",
            help="Secret that clients must send. Required unless only this machine can connect.",
            show_default="none",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse uploads and deletions.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another host name of this server, as behind a proxy. Repeat it for several.",
        ),
    ] = None,
    max_upload_mb: Annotated[
        int, typer.Option(metavar="MB", help="Largest upload.", min=1, rich_help_panel=LIMITS)
    ] = 100,
    max_upload_pages: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="Most pages in an upload.", min=1, rich_help_panel=LIMITS
        ),
    ] = 2000,
    max_query: Annotated[
        int,
        typer.Option(metavar="CHARACTERS", help="Longest question.", min=1, rich_help_panel=LIMITS),
    ] = 2000,
    max_searches: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="Searches at once; others wait.", min=1, rich_help_panel=LIMITS
        ),
    ] = 4,
    max_connections: Annotated[
        int,
        typer.Option(
            help="Connections at once; further ones replace idle ones.",
            metavar="NUMBER",
            min=1,
            rich_help_panel=LIMITS,
        ),
    ] = 200,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as a line of JSON.")
    ] = False,
) -> None:
    """Serve an index in the browser: search, see why a page matched, add and delete documents.

    Only this machine can connect unless --host says otherwise. /openapi.json and docs/serve.md
    describe the API.

    glie serve reports.glie

    GLIE_TOKEN=$(openssl rand -hex 16) glie serve reports.glie --host 0.0.0.0 --read-only
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("the web application", "serve") from None
    from glie.server.app import LOOPBACK, create_app
    from glie.server.connections import BACKLOG, fitting, limited, log_seldom
    from glie.server.guard import check_exposure, is_loopback
    from glie.server.limits import Limits

    check_exposure(host, token)
    names = [*LOOPBACK, host, *(allow_host or [])]
    limits = Limits(
        upload_bytes=max_upload_mb * MEGABYTE,
        upload_pages=max_upload_pages,
        query_characters=max_query,
        searches=max_searches,
        connections=max_connections,
    )
    app = create_app(
        index_path,
        read_only=read_only,
        token=token,
        hosts=names if allow_host or is_loopback(host) else None,
        limits=limits,
    )
    listening = listening_socket(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    if as_json:
        print_json({"index": str(index_path), "url": address, "read_only": read_only})
    else:
        output.print(f"{index_path} at {address} (Ctrl-C ends it)", soft_wrap=True)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
        ws="none",
        http=limited(fitting(limits)),
        backlog=BACKLOG,
    )
    log_seldom()
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        announcing_server(config, index_path, address, token).run(sockets=[listening])


def announcing_server(
    config: uvicorn.Config, index_path: Path, address: str, token: str | None
) -> uvicorn.Server:
    """A server that says in the index where it listens, from when it is ready until it ends, also
    by a signal. One that listens on all addresses is found on this machine's own."""
    import uvicorn

    from glie.running import announce, withdraw

    own = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce(index_path, own.replace("//localhost:", "//127.0.0.1:"), token)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            withdraw(index_path)
            await super().shutdown(sockets)

    return Announcing(config)


def listening_socket(host: str, port: int) -> socket.socket:
    """Listen on an address, or say why that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another with --port "
            "or --host"
        ) from None


def mcp(index_path: IndexPath) -> None:
    """Serve an index to an assistant over the Model Context Protocol (stdin and stdout).

    The assistant can search, read a page as text or picture, and list the documents. It sees no
    other file. For example, in its settings:

    {"mcpServers": {"reports": {"command": "glie", "args": ["mcp", "/path/to/reports.glie"]}}}

    Needs the extra mcp: pip install "glie\\[mcp]"
    """
    from glie.integrations.mcp import make_server

    make_server(index_path).run()
