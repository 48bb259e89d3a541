"""Make the screenshots of `glie serve` in the documentation, with the sample documents and the
steps of the browser tests.

    python tools/screenshot.py [--index build/samples.glie] [--to docs]

Needs Debian's Chromium. `make run` makes the index.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server.browser import ask, chromium, open_hit, open_page, served

QUESTION = "Why does copper paint wear out sooner on a turbine blade than on a ship's hull?"
SIZE = (1180, 780)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index", type=Path, default=Path("build/samples.glie"))
    parser.add_argument("--to", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    with served(arguments.index, read_only=True) as address, chromium() as browser:
        page = open_page(browser, address, size=SIZE)
        ask(page, "seals")  # loads the encoder
        ask(page, QUESTION)
        keep(page, arguments.to / "search.png")
        open_hit(page)
        keep(page, arguments.to / "why.png")


def keep(page: Page, path: Path) -> None:
    """Save a screenshot of the page once it is idle, with 256 colours."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
