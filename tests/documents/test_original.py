"""The file behind an indexed page: its text, its picture, and whether it has changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glie.documents.original import (
    file_digest,
    original_picture,
    original_text,
    unchanged,
    why_no_text,
)
from tests.documents.test_documents import make_pdf


def test_text_and_change(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["First page", "Second page"])
    metadata = {"document": "a.pdf", "page": 2, "path": str(path), "digest": file_digest(path)}
    assert original_text(metadata).strip() == "Second page"
    assert unchanged(metadata)
    for wrong in (
        {},
        {**metadata, "page": 3},
        {**metadata, "path": 3},
        {**metadata, "path": "gone"},
    ):
        assert original_text(wrong) == ""
    make_pdf(path, ["Another first page", "Another second page"])
    assert not unchanged(metadata)
    assert not unchanged({})


def test_picture(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["First page", "Second page"])
    metadata = {"page": 2, "path": str(path)}
    drawn = original_picture(metadata, None)
    assert drawn is not None
    assert drawn.kind == "image/webp"
    assert original_picture({}, drawn.data) == drawn  # the kept one needs no file
    assert original_picture(metadata, None, draw=False) is None
    assert original_picture(metadata, np.random.default_rng(0).bytes(50)) is None  # not an image
    assert original_picture({}, None) is None


def test_why_there_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    assert why_no_text({"origin": "ocr"}) == "a scanned page, read by OCR"
    assert why_no_text({"path": "gone.pdf"}) == "its file is gone: gone.pdf"
    assert why_no_text({"path": str(tmp_path / "a.png")}) == why_no_text({}) == "no text"
