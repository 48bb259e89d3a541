"""A server in this process and a real Chromium in front of it: for tests, and for the pictures in
the documentation."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import uvicorn

from glie.cli.serve import listening_socket
from glie.server.app import create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def served(index: Path, **options: Any) -> Iterator[str]:
    """The address of a server of this index."""
    listening = listening_socket("127.0.0.1", 0)
    config = uvicorn.Config(create_app(index, **options), log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # in a container there is no other sandbox to be had, and all pages are our own
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(
    browser: Browser,
    address: str,
    *,
    size: tuple[int, int] = (1280, 860),
    scheme: Literal["light", "dark"] = "light",
    touch: bool = False,
) -> Page:
    """The page at an address, in a window of its own."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=touch
    )
    page = context.new_page()
    page.goto(address)
    return page


def ask(page: Page, question: str) -> None:
    """Type a question, and wait for its answers."""
    page.fill("#query", question)
    with page.expect_response("**/search"):
        page.press("#query", "Enter")
    page.wait_for_selector("#results .card")


def open_hit(page: Page, rank: int = 1) -> None:
    """Open one of the answers, and wait for its heat map."""
    page.click(f"#results li:nth-child({rank}) .card")
    page.wait_for_selector("#words button")
    page.wait_for_selector(".heat i, .leaftext span")
