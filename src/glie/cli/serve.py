"""The verbs that serve an index to other programs."""

from __future__ import annotations

from glie.cli.shared import IndexPath


def mcp(index_path: IndexPath) -> None:
    """Serve an index to an assistant, by the Model Context Protocol on stdin and stdout.

    The assistant can search, read a page as text or picture, and ask which documents there are. It
    sees the documents of the index, and no other file. In its settings, for example:

    {"mcpServers": {"reports": {"command": "glie", "args": ["mcp", "/path/to/reports.glie"]}}}

    Needs the extra mcp: pip install "glie\\[mcp]"
    """
    from glie.integrations.mcp import make_server

    make_server(index_path).run()
