"""The web application over an index: its API and its page."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import glie
from glie.errors import MissingExtraError
from glie.server.guard import Guard
from glie.server.library import Library
from glie.server.limits import Limits
from glie.server.survey import Surveyor
from glie.server.uploads import Uploads

try:
    from fastapi import FastAPI
    from starlette.convertors import PathConvertor, register_url_convertor

    from glie.server.metrics import Metrics
    from glie.server.problems import add_error_handlers, problem
    from glie.server.routes.documents import add_documents
    from glie.server.routes.encode import add_encode
    from glie.server.routes.index import add_index, add_measurements
    from glie.server.routes.original import add_original
    from glie.server.routes.page import add_pages
    from glie.server.routes.search import add_search
    from glie.server.routes.static import add_static
except ImportError:
    raise MissingExtraError("the web application", "serve") from None

if TYPE_CHECKING:
    from glie.encoders import Encoder

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class AnyConvertor(PathConvertor):
    """An id in an address: it may hold slashes and newlines."""

    regex = "(?s:.*)"


register_url_convertor("any", AnyConvertor())


def create_app(
    index_path: str | os.PathLike[str],
    *,
    encoder: Encoder | None = None,
    read_only: bool = False,
    token: str | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> FastAPI:
    """The application for an index. It answers requests for `hosts` (None: any, which is safe only
    with a token). By default the encoder is the one that the index records."""
    library = Library(Path(index_path), encoder)
    uploads = Uploads(library, limits.upload_pages)
    surveyor = Surveyor(library)
    metrics = Metrics(library)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=library.warm_up, name="warm-up", daemon=True).start()
        if not read_only:
            uploads.tidy()
        yield

    app = FastAPI(
        title="glie",
        version=glie.__version__,
        description="Search an index, see why a page matched, add and delete documents.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.library = library
    app.add_middleware(
        Guard,
        token=token,
        hosts=hosts,
        refuse=problem,
        body_limit=lambda method, path: (
            limits.upload_bytes
            if (method, path, read_only) == ("POST", "/documents", False)
            else limits.body_bytes
        ),
        seen=metrics.answered,
    )
    add_error_handlers(app)
    add_static(app, token)
    add_search(app, library, metrics, limits)
    add_encode(app, library, limits)
    add_original(app, library)
    add_pages(app, library, limits)
    add_documents(app, library, uploads, metrics, read_only)
    add_measurements(app, library, surveyor)
    add_index(app, library, metrics, limits, read_only)

    return app
