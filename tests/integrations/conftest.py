"""A few documents, and an index of them made with the embedded encoder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

import glie
from glie.encoders import Encoder, load_encoder
from glie.ingest import ingest
from tests.documents.test_documents import make_pdf, picture

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported

CAPITAL = "Capital expenditure in 2018 was 1,577 million dollars"
HOLIDAY = "Holiday allowance is 25 days for full-time staff"
LONG = "The harbour master's log of 1974. " * 80


class Library(NamedTuple):
    documents: Path
    path: Path  # of the index


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    return load_encoder()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Library:
    """Pages of a PDF, of a text and of a scan, in a folder that tests must not change."""
    folder = tmp_path_factory.mktemp("library")
    documents = folder / "reports"
    make_pdf(documents / "annual/report.pdf", [CAPITAL, "Rotor blades are inspected twice a year"])
    make_pdf(documents / "staff.pdf", [HOLIDAY])
    (documents / "log.txt").write_text(LONG)
    picture("Invoice for turbine oil").save(documents / "scan.png")
    entry = {"name": encoder.name, "revision": encoder.revision}
    index = glie.Index.create(folder / "reports.glie", glie.Codec(k=16), encoder=entry)
    report = ingest(index, encoder, [documents])
    assert (report.pages_added, report.pages_by_ocr, report.problems) == (5, 1, [])
    return Library(documents, index.path)
