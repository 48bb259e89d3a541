"""An MCP server over an index: assistants search it, read a page, and list its documents.

It reads only files that were indexed, and only while they have not changed since.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeAlias

import glie
from glie.documents.known import known_documents
from glie.documents.original import ImageFile, original_picture, original_text, unchanged
from glie.errors import DocumentError, GlieError, IdError, MissingExtraError
from glie.retriever import AnyEncoder, Retriever, filter_from_outside
from glie.wording import count, listing

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ImageContent, TextContent, ToolAnnotations
    from pydantic import Field, ValidationError
except ImportError:
    raise MissingExtraError("the MCP server", "mcp") from None

MOST_PAGES = 50  # of one search
MOST_CHARACTERS = 8000  # of a page in a search; a printed page has 3,000
MOST_DOCUMENTS = 200  # in a list

Content: TypeAlias = TextContent | ImageContent
Show = Annotated[
    Literal["auto", "text", "image"],
    Field(
        description="What to return of a page: its text, its picture, or (auto) the text where "
        "there is one and else the picture. Ask for the picture where layout, a table or a chart "
        "matters."
    ),
]

NOTHING = {
    "auto": "it has neither text nor a picture",
    "text": "it has no text; ask for its picture",
    "image": "it has no picture; ask for its text",
}
NOT_AS_INDEXED = (
    "its file is gone or has changed since it was indexed; `glie index` takes it in again"
)
INSTRUCTIONS = """\
Searches a collection of documents by meaning and words, and returns single pages. Ask `search` in a
full sentence, as a person would; each hit has an id such as report.pdf#3, that is page 3 of
report.pdf. `read_page` shows a page by its id: its picture, or a page beside a hit (report.pdf#4).
`describe_index` tells which documents there are. Scores compare pages for one question only. Cite
the document and page that an answer was found on.\
"""


class Server(MCPServer):
    """MCPServer whose tools fail with one line: what is wrong and what to do."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in cause.errors()]
                raise ToolError("; ".join(wrong)) from None
            if isinstance(cause, GlieError):
                raise ToolError(" ".join(str(cause).split())) from None
            if isinstance(cause, OSError):
                raise ToolError(f"{cause.filename}: {cause.strerror or cause}") from None
            raise


def make_server(
    index: glie.Index | str | os.PathLike[str], encoder: AnyEncoder | None = None
) -> Server:
    """A server over an index: `make_server("reports.glie").run()` serves on stdin and stdout."""
    retriever = Retriever(index, encoder)

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        # load during the handshake; an error is reported by the first search
        threading.Thread(target=_load, args=[retriever]).start()
        yield

    server = Server(
        "glie",
        title=f"glie: {retriever.index.path.name}",
        version=glie.__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
    )

    def search(
        question: Annotated[
            str, Field(description="What you want to know, in a full sentence or in keywords.")
        ],
        top: Annotated[
            int, Field(ge=1, le=MOST_PAGES, description="How many pages to return, best first.")
        ] = 5,
        documents: Annotated[
            list[str] | None,
            Field(
                description="Only pages of these documents or folders, named as in describe_index."
            ),
        ] = None,
        where: Annotated[
            dict[str, Any] | None,
            Field(
                description="Only pages whose metadata matches a filter, such as "
                '{"document": {"prefix": "annual/"}, "page": {"<=": 10}}. Operators: =, !=, >, >=, '
                "<, <=, in, not in, exists, prefix; and, or, not join filters. A list of values "
                "means any of them."
            ),
        ] = None,
        mode: Annotated[
            Literal["hybrid", "late", "lexical"] | None,
            Field(
                description="How to search: words and meaning together (hybrid), meaning alone "
                "(late) or words alone (lexical). By default hybrid, if the index has words."
            ),
        ] = None,
        show: Show = "auto",
    ) -> list[Content]:
        """Find the pages that answer a question, by its meaning and by its words. "Quotes" in it
        ask for an exact word, number or phrase; -word leaves out pages with that word. Each page
        comes as JSON (rank, id, document, page, score, text), followed by its picture where that is
        shown.
        """
        asked = filter_from_outside(where)
        hits = retriever.search(question, top, documents=documents or None, where=asked, mode=mode)
        if not len(hits):
            matching = len(retriever.index)
            return _blocks({"note": "no page matches" if matching else "the index is empty"})
        blocks: list[Content] = []
        for rank, hit in enumerate(hits, start=1):
            facts, picture = _seen(retriever.index, hit.id, show)
            whole = facts["text"]
            if len(whole) > MOST_CHARACTERS:
                facts["text"] = whole[:MOST_CHARACTERS]
                facts["note"] = f"cut from {len(whole):,} characters; read_page shows them all"
            blocks += _blocks({"rank": rank, "score": round(hit.score, 6), **facts}, picture)
        return blocks

    def read_page(
        page: Annotated[
            str, Field(description="The page's id: its document and number, like report.pdf#3.")
        ],
        show: Show = "auto",
    ) -> list[Content]:
        """Show one page of a document by its id, as JSON (id, document, page, text), followed by
        its picture where that is shown. Use it to see a hit's picture, or the pages around it."""
        retriever.refresh()
        if page not in retriever.index:
            raise IdError(f"{page}: no such page; {_instead(retriever.index, page)}")
        facts, picture = _seen(retriever.index, page, show)
        if "note" in facts:
            raise DocumentError(f"{page}: {facts['note']}")
        return _blocks(facts, picture)

    def describe_index(
        below: Annotated[
            str, Field(description="List only documents whose name begins so, like annual/.")
        ] = "",
    ) -> list[Content]:
        """Tell what the collection holds, as JSON: how many pages and documents, which documents
        with how many pages each, and how the pages are stored."""
        retriever.refresh()
        facts = retriever.index.info()
        known = {
            name: len(document.ids) for name, document in known_documents(retriever.index).items()
        }
        wanted = {name: pages for name, pages in known.items() if name.startswith(below)}
        described: dict[str, Any] = {
            "index": retriever.index.path.name,
            "pages": facts.pages,
            "documents": len(known),
            "encoder": facts.encoder,
            "bytes_per_page": round(facts.bytes_per_page) if facts.bytes_per_page else None,
            "pages_of": dict(list(wanted.items())[:MOST_DOCUMENTS]),
        }
        if len(wanted) > MOST_DOCUMENTS:
            described["note"] = (
                f"{count(len(wanted) - MOST_DOCUMENTS, 'document')} not listed; `below` narrows it"
            )
        return _blocks(described)

    for title, tool in (
        ("Search the documents", search),
        ("Read a page", read_page),
        ("Describe the index", describe_index),
    ):
        server.add_tool(
            tool,
            title=title,
            description=" ".join((tool.__doc__ or "").split()),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            structured_output=False,
        )
    return server


def _load(retriever: Retriever) -> None:
    with contextlib.suppress(GlieError, OSError):
        retriever.load()


def _seen(index: glie.Index, page_id: str, show: str) -> tuple[dict[str, Any], ImageFile | None]:
    """A page's facts and text, and its picture if that is wanted or there is no text; a note if
    there is neither."""
    metadata = index.metadata(page_id)
    same, text, picture = unchanged(metadata), "", None
    if same and show != "image":
        text = original_text(metadata, ocr=show == "text")
    if show == "image" or (show == "auto" and not text.strip()):
        picture = original_picture(metadata, index.image(page_id), draw=same)
    document, number = metadata.get("document"), metadata.get("page")
    facts = {"id": page_id, "document": document, "page": number, "text": text}
    if not text.strip() and picture is None:
        facts["note"] = NOTHING[show] if same else NOT_AS_INDEXED
    return facts, picture


def _blocks(facts: dict[str, Any], picture: ImageFile | None = None) -> list[Content]:
    blocks = [TextContent(type="text", text=json.dumps(facts, ensure_ascii=False))]
    if picture is not None:
        data = base64.b64encode(picture.data).decode()
        blocks.append(ImageContent(type="image", data=data, mime_type=picture.kind))
    return blocks


def _instead(index: glie.Index, page_id: str) -> str:
    """What to ask for instead of a page that is not in the index."""
    document = known_documents(index).get(page_id.rpartition("#")[0])
    if document is not None:
        return f"of this document there are {listing(document.ids)}"
    return "an id is a document and a number, like report.pdf#3; describe_index lists the documents"
