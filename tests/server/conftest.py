"""An index of a few small documents, and clients of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

import glie
from glie.encoders import Encoder, load_encoder
from glie.ingest import ingest
from glie.server.app import create_app
from tests.documents.test_documents import make_pdf
from tests.server.browser import CHROMIUM, chromium, open_page, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

LINES = [
    "Capital expenditure in 2018 was 1,577 million dollars\nand was spent on turbines",
    "Rotor blades are inspected twice a year",
    "The harbour is closed in winter",
]

Client = Callable[..., TestClient]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(
            "no Chromium was found: the tests in a browser were skipped (apt-get install chromium)"
        )


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    return load_encoder()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Path:
    """The folder of the index and of its documents."""
    folder = tmp_path_factory.mktemp("served")
    make_pdf(folder / "docs" / "reports" / "a.pdf", LINES)
    make_pdf(folder / "docs" / "b.pdf", ["Holiday allowance is 25 days for full-time staff"])
    (folder / "docs" / "notes.md").write_text(
        "# Meeting 🐟\n\nThe crane barge is booked for October.\n", encoding="utf-8"
    )
    index = glie.Index.create(
        folder / "my.glie",
        glie.Codec(bytes_per_page=520),
        encoder={"name": encoder.name, "revision": encoder.revision},
    )
    report = ingest(index, encoder, [folder / "docs"])
    assert report.problems == []
    return folder


@pytest.fixture
def index_path(made: Path, tmp_path: Path) -> Path:
    """A copy of the index, to be changed."""
    return Path(shutil.copytree(made / "my.glie", tmp_path / "my.glie"))


@pytest.fixture
def client(index_path: Path, encoder: Encoder) -> Iterator[Client]:
    """Makes clients of servers of the copy."""
    opened: list[TestClient] = []

    def make(**options: Any) -> TestClient:
        app = create_app(index_path, **{"encoder": encoder, **options})
        opened.append(TestClient(app, "http://127.0.0.1", raise_server_exceptions=False))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(
    made: Path, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    index = shutil.copytree(made / "my.glie", tmp_path_factory.mktemp("browser") / "my.glie")
    with served(Path(index), encoder=encoder) as url:
        yield url


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page in a window; what goes wrong in it, and what it asks for elsewhere, is a fault."""
    opened = open_page(browser, "about:blank")
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: note(said) if said.type == "error" else None)

    def note(said: ConsoleMessage) -> None:
        wrong.append(f"{said.text} {said.location['url']}")

    hosts = set[str]()
    opened.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    opened.goto(address)
    yield opened
    opened.context.close()
    assert wrong == []
    assert hosts <= {urlsplit(address).netloc}
