"""Files to pages: every kind, and every way in which a file can be bad."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pytest
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

import glie
import glie.documents as documents
from glie.documents import FoundDocument, find_documents, images, page_text, read_document
from glie.documents import opened as pdfs
from glie.documents.find import KINDS
from glie.documents.text import TEXT_PAGE_CHARACTERS


def make_pdf(path: Path, texts: list[str], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pdf = canvas.Canvas(str(path), pagesize=A4, **options)
    for text in texts:
        for i, line in enumerate(text.split("\n")):
            pdf.drawString(72, 720 - 20 * i, line)
        pdf.showPage()
    pdf.save()
    return path


def picture(text: str) -> Image.Image:
    image = Image.new("L", (1000, 300), 255)
    draw = ImageDraw.Draw(image)
    draw.text((40, 100), text, fill=0, font=ImageFont.load_default(60))
    return image


def read(path: Path, **options: Any) -> documents.ReadDocument:
    return read_document(FoundDocument(path.name, path), **options)


def test_pdf_pages_have_text_words_and_a_picture(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["Tidal energy\nin the north", "Second page"])
    pages, problems = read(path)
    assert problems == []
    assert [page.id for page in pages] == ["a.pdf#1", "a.pdf#2"]
    assert pages[0].text.split() == ["Tidal", "energy", "in", "the", "north"]
    assert pages[0].origin == "text"
    assert page_text(path, 2).strip() == "Second page"
    words = pages[0].words()
    assert [word.text for word in words] == ["Tidal", "energy", "in", "the", "north"]
    width, height = A4
    first = words[0]
    assert first.left == pytest.approx(72 / width, abs=0.01)
    assert first.bottom == pytest.approx(1 - 720 / height, abs=0.01)  # from the top
    assert 0 < first.top < first.bottom < words[2].bottom < 1
    image = pages[0].image(800)
    assert image.size[1] == pytest.approx(800, abs=1)
    left, right = (int(x * image.width) for x in (first.left, first.right))
    top, bottom = (int(y * image.height) for y in (first.top, first.bottom))
    assert min(image.crop((left, top, right, bottom)).convert("L").tobytes()) < 100  # ink there


def test_text_and_markdown(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("\ufeff# Title\n\nBody", encoding="utf-8")
    (tmp_path / "b.txt").write_text("one\fcontent two\fthree", encoding="utf-8")
    assert read(tmp_path / "a.md").pages[0].text.startswith("# Title")
    assert [page.number for page in read(tmp_path / "b.txt").pages] == [1, 2, 3]
    assert page_text(tmp_path / "b.txt", 2).strip() == "content two"
    assert read(tmp_path / "a.md").pages[0].words() == []
    with pytest.raises(glie.DocumentError, match="a text file has no picture"):
        read(tmp_path / "a.md").pages[0].image()


def test_a_long_text_becomes_pages_without_losing_a_word(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(5000)]
    paragraphs = [" ".join(words[i : i + 40]) for i in range(0, 4000, 40)] + [
        " ".join(words[4000:])
    ]
    (tmp_path / "long.txt").write_text("\n\n".join(paragraphs))
    pages = read(tmp_path / "long.txt").pages
    assert len(pages) > 10
    assert all(len(page.text) <= TEXT_PAGE_CHARACTERS + 10 for page in pages)
    assert " ".join(page.text for page in pages).split() == words


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tiff", ".webp"])
def test_images_are_read_by_ocr(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scan{suffix}"
    picture("Harbour invoice").save(path)
    pages, problems = read(path)
    assert problems == []
    assert pages[0].origin == "ocr"
    assert pages[0].text.split() == ["Harbour", "invoice"]
    words = pages[0].words()
    assert [word.text for word in words] == ["Harbour", "invoice"]
    assert 0 < words[0].left < words[0].right < words[1].left < words[1].right < 1


def test_without_ocr_a_picture_has_no_text(tmp_path: Path) -> None:
    picture("Harbour invoice").save(tmp_path / "scan.png")
    assert [page.origin for page in read(tmp_path / "scan.png", ocr=False).pages] == ["none"]


def test_a_missing_ocr_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ocr_available", lambda: False)
    with pytest.raises(glie.MissingExtraError, match=r'pip install "glie\[ocr\]"'):
        documents.read_image(picture("a"))


def test_a_tiff_of_several_pages(tmp_path: Path) -> None:
    first, second = picture("First sheet"), picture("Second sheet")
    first.save(tmp_path / "fax.tif", save_all=True, append_images=[second])
    assert [page.text.split()[0] for page in read(tmp_path / "fax.tif").pages] == [
        "First",
        "Second",
    ]


def test_a_scanned_page_inside_a_pdf(tmp_path: Path) -> None:
    picture("Signed delivery").save(tmp_path / "scan.png")
    pdf = canvas.Canvas(str(tmp_path / "mixed.pdf"), pagesize=A4)
    pdf.drawString(72, 720, "A page with a text layer")
    pdf.showPage()
    pdf.drawImage(str(tmp_path / "scan.png"), 50, 400, 500, 150)
    pdf.showPage()
    pdf.save()
    pages = read(tmp_path / "mixed.pdf").pages
    assert [page.origin for page in pages] == ["text", "ocr"]
    assert "delivery" in pages[1].text


def bad_files(folder: Path) -> dict[str, str]:
    """One file of each bad kind, and what is said of it."""
    folder.mkdir(exist_ok=True)
    make_pdf(folder / "good.pdf", ["fine"])
    data = (folder / "good.pdf").read_bytes()
    (folder / "cut.pdf").write_bytes(data[:200])
    (folder / "noise.pdf").write_bytes(b"not a pdf at all")
    (folder / "empty.pdf").write_bytes(b"")
    make_pdf(folder / "locked.pdf", ["secret"], encrypt="password")
    (folder / "noise.png").write_bytes(b"not an image")
    picture("x").save(folder / "whole.png")
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:400])
    (folder / "whole.png").unlink()
    (folder / "empty.txt").write_bytes(b"")
    (folder / "blank.txt").write_text(" \n ")
    (folder / "latin.txt").write_bytes("naïve café".encode("latin-1"))
    return {
        "cut.pdf": "cut.pdf: damaged",
        "noise.pdf": "noise.pdf: not a PDF",
        "empty.pdf": "empty.pdf: the file is empty",
        "locked.pdf": "locked.pdf: encrypted; save a copy without a password",
        "noise.png": "noise.png: damaged, or not an image",
        "cut.png": "cut.png: damaged",
        "empty.txt": "empty.txt: the file is empty",
        "blank.txt": "blank.txt: the file holds only white space",
        "latin.txt": "latin.txt: not UTF-8 text",
    }


def test_bad_files_are_named(tmp_path: Path) -> None:
    for name, message in bad_files(tmp_path / "bad").items():
        with pytest.raises(glie.DocumentError) as caught:
            read(tmp_path / "bad" / name)
        assert str(caught.value).startswith(message)


def raw_pdf(path: Path, content: bytes, *forms: bytes, **changes: bytes) -> Path:
    """A PDF of one page, written by hand."""
    resources = b"<</XObject<</X %d 0 R>>/Font<</F 3 0 R>>>>"
    parts = {
        "catalog": b"<</Type/Catalog/Pages 2 0 R>>",
        "pages": b"<</Type/Pages/Kids[5 0 R]/Count 1>>",
        "font": b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "stream": b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        "page": b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources"
        + resources % 6
        + b">>",
    }
    objects = [*{**parts, **changes}.values()]
    for form in forms:
        head = b"/Type/XObject/Subtype/Form/BBox[0 0 612 792]/Resources"
        head += resources % (len(objects) + 2) + b"/Length %d" % len(form)
        objects.append(b"<<" + head + b">>stream\n" + form + b"\nendstream")
    data, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size, start = len(objects) + 1, len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    data += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, start)
    path.write_bytes(data)
    return path


WORDS = b"BT /F 12 Tf 50 700 Td (Hello there world) Tj ET "


def test_a_page_of_any_claimed_size(tmp_path: Path) -> None:
    for name, box in (("vast", b"[0 0 1e9 1e9]"), ("thin", b"[0 0 1e6 1]"), ("none", b"[0 0 0 0]")):
        page = b"<</Type/Page/Parent 2 0 R/MediaBox%s/Contents 4 0 R/Resources" % box
        path = raw_pdf(tmp_path / f"{name}.pdf", WORDS, page=page + b"<</Font<</F 3 0 R>>>>>>")
        assert max(read(path, ocr=False).pages[0].image(300).size) <= 300, name


def test_a_page_bomb_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forms within forms, ten of each in the next: a billion words in two kilobytes."""
    monkeypatch.setattr(pdfs, "SECONDS", 1)
    fan = b"/X Do " * 10
    bomb = raw_pdf(tmp_path / "bomb.pdf", WORDS + fan, *[fan] * 8, WORDS)
    with pytest.raises(
        glie.DocumentError, match=r"bomb\.pdf, page 1: cannot be read: it takes more memory or time"
    ):
        read(bomb)
    page = documents.DocumentPage("bomb.pdf", 1, bomb, "", "text")
    with pytest.raises(glie.DocumentError, match="cannot be drawn: it takes more memory or time"):
        page.image()
    with pytest.raises(glie.DocumentError, match="cannot be read: it takes more memory or time"):
        page.words()
    # the pages behind such a page, in one file
    pages = b"<</Type/Pages/Kids[5 0 R 6 0 R]/Count 2>>"
    second = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>"
    second += b"/Contents 4 0 R>>"
    first = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</XObject<</X 7 0 R>>"
    first += b"/Font<</F 3 0 R>>>>/Contents 7 0 R>>"
    both = raw_pdf(tmp_path / "both.pdf", WORDS, *[fan] * 9, pages=pages, page=first, second=second)
    found = read(both, ocr=False)
    assert [(page.number, page.text.strip()) for page in found.pages] == [(2, "Hello there world")]
    assert len(found.problems) == 1


def test_a_bomb_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdfs, "MEMORY", 200 << 20)
    packed = zlib.compress(b"q " * (40 << 20), 9)
    head = b"<</Filter/FlateDecode/Length %d>>stream\n" % len(packed)
    bomb = raw_pdf(tmp_path / "bomb.pdf", b"", stream=head + packed + b"\nendstream")
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(glie.DocumentError, match="it takes more memory or time"):
        read(bomb)


def test_more_pages_claimed_than_there_are(tmp_path: Path) -> None:
    pages = b"<</Type/Pages/Kids[5 0 R]/Count 1000000>>"
    found = read(raw_pdf(tmp_path / "many.pdf", WORDS, pages=pages), ocr=False)
    assert [page.number for page in found.pages] == [1]
    assert len(found.problems) == pdfs.UNREADABLE_PAGES + 1
    assert "page 102: cannot be read: given up, like the 999,898 pages" in found.problems[-1]


def test_no_pages(tmp_path: Path) -> None:
    path = raw_pdf(tmp_path / "none.pdf", b"", pages=b"<</Type/Pages/Kids[]/Count 0>>")
    with pytest.raises(glie.DocumentError, match=r"none\.pdf: (it has no pages|damaged)"):
        read(path)


def test_an_image_of_absurd_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture("x").save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(glie.DocumentError, match=r"bomb\.png: more pixels than any page has"):
        read(tmp_path / "bomb.png")


def test_pictures_are_seen_as_a_person_sees_them(tmp_path: Path) -> None:
    """On white where they are transparent, scaled where they are deep, turned where they say so."""
    plain = picture("Harbour invoice")
    see_through = Image.new("RGBA", plain.size, (0, 0, 0, 0))
    see_through.putalpha(plain.point(lambda value: 255 - value))
    see_through.save(tmp_path / "transparent.png")
    deep = np.asarray(plain, dtype=np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "deep.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # hold it turned by 90 degrees
    plain.rotate(90, expand=True).save(tmp_path / "turned.jpg", exif=exif)
    for name in ("transparent.png", "deep.png", "turned.jpg"):
        assert read(tmp_path / name).pages[0].text.split() == ["Harbour", "invoice"], name


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, (50, 300, 500, 760)])
def test_words_stand_where_their_ink_is(
    tmp_path: Path, rotation: int, crop: tuple[float, ...] | None
) -> None:
    make_pdf(tmp_path / "a.pdf", ["Tidal energy"])
    pdf = pypdfium2.PdfDocument(tmp_path / "a.pdf")
    pdf[0].set_rotation(rotation)
    if crop:
        pdf[0].set_cropbox(*crop)
    pdf.save(tmp_path / "b.pdf")
    page = read(tmp_path / "b.pdf").pages[0]
    words = page.words()
    assert [word.text for word in words] == ["Tidal", "energy"]
    ink = np.asarray(page.image(1000).convert("L")) < 128
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    height, width = ink.shape
    found = (
        min(w.left for w in words), min(w.top for w in words),
        max(w.right for w in words), max(w.bottom for w in words),
    )  # fmt: skip
    expected = (columns[0] / width, rows[0] / height, columns[-1] / width, rows[-1] / height)
    assert found == pytest.approx(expected, abs=0.012)


def test_short_and_blank_text_pages(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("hi")
    (tmp_path / "gaps.txt").write_text("one\f\f three")
    assert [page.text.strip() for page in read(tmp_path / "short.txt").pages] == ["hi"]
    pages, problems = read(tmp_path / "gaps.txt")
    assert problems == []
    assert [page.origin for page in pages] == ["text", "blank", "text"]


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))
    path.write_text("text")
    with pytest.raises(glie.DocumentError, match="its name is not valid UTF-8"):
        read(path)


def test_damaged_images_never_raise_anything_else(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in (".tif", ".png", ".webp", ".jpg"):
        path = tmp_path / f"a{suffix}"
        picture("x").resize((60, 20)).save(path)
        data = path.read_bytes()
        for _ in range(60):
            broken = bytearray(data)
            for at in rng.integers(len(data), size=3):
                broken[at] = int(rng.integers(256))
            path.write_bytes(broken)
            with contextlib.suppress(glie.DocumentError):
                for page in read(path, ocr=False).pages:
                    page.image(100)


def test_only_files_are_documents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(glie.DocumentError, match="neither a file nor a folder"):
        find_documents([tmp_path / "pipe.txt"])


def test_finding(tmp_path: Path) -> None:
    for name in ("b.pdf", "a/one.TXT", "a/.hidden.txt", ".git/x.txt", "a/code.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    names = [document.name for document in find_documents([tmp_path])]
    assert names == ["a/one.TXT", "b.pdf"]
    assert [d.name for d in find_documents([tmp_path / "b.pdf", tmp_path])] == [
        "b.pdf",
        "a/one.TXT",
    ]
    with pytest.raises(glie.DocumentError, match="no such file or folder"):
        find_documents([tmp_path / "none"])
    with pytest.raises(glie.DocumentError, match=r"code\.py: not a kind of document"):
        find_documents([tmp_path / "a" / "code.py"])


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("2022", "2023"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "report.txt").write_text("text")
    found = find_documents([tmp_path / "2022", tmp_path / "2023"])
    assert [document.name for document in found] == ["2022/report.txt", "2023/report.txt"]


def test_every_kind_is_decided_by_the_suffix(tmp_path: Path) -> None:
    pictured = {suffix: documents.has_picture(f"a{suffix.upper()}") for suffix in KINDS}
    assert [suffix for suffix, drawn in pictured.items() if not drawn] == [
        *(".txt", ".md", ".markdown"),
        *(".docx", ".pptx", ".xlsx", ".html", ".htm", ".epub", ".eml"),
    ]
    assert not documents.has_picture("a.odt")
    assert not documents.has_picture("")
    unknown = FoundDocument("a.odt", tmp_path / "a.odt")
    unknown.path.write_text("some text")
    for read in (documents.count_pages, documents.read_document):
        with pytest.raises(glie.DocumentError, match=r"a\.odt: not a kind of document"):
            read(unknown)


def test_small_pictures(tmp_path: Path) -> None:
    page = read(make_pdf(tmp_path / "a.pdf", ["Tidal energy"])).pages[0]
    data = documents.small_picture(page)
    assert data is not None
    assert data[:4] == b"RIFF"
    assert len(data) < 20_000


def test_pages_are_counted_without_being_read(tmp_path: Path) -> None:
    make_pdf(tmp_path / "a.pdf", ["one", "two", "three"])
    (tmp_path / "b.txt").write_text("one\ftwo")
    picture("Hello").save(tmp_path / "c.png")
    counted = [
        documents.count_pages(FoundDocument(name, tmp_path / name))
        for name in ("a.pdf", "b.txt", "c.png")
    ]
    assert counted == [3, 2, 1]
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nonsense")
    with pytest.raises(glie.DocumentError, match=r"bad\.pdf: damaged"):
        documents.count_pages(FoundDocument("bad.pdf", tmp_path / "bad.pdf"))


def test_threads_may_read_at_the_same_time(tmp_path: Path) -> None:
    """pdfium itself crashes the process then."""
    path = make_pdf(tmp_path / "a.pdf", [f"page number {n}" for n in range(8)])

    def work(number: int) -> str:
        page = read(path).pages[number % 8]
        assert max(page.image(300).size) == 300
        assert page.words()[-1].text == str(number % 8)
        return page_text(path, number % 8 + 1).strip()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(32))) == [f"page number {n % 8}" for n in range(32)]


def test_a_process_is_kept_for_the_next_page_and_no_longer_than_its_file(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["one", "two"])
    with pdfs.open_document(path) as first:
        assert first.text(2).strip() == "two"
    with pdfs.open_document(path) as again, pdfs.open_document(path) as another:
        assert again is first
        assert another is not first
    make_pdf(path, ["three", "four", "five"])
    with pdfs.open_document(path) as changed:
        assert (changed is first, changed.pages, changed.text(1).strip()) == (False, 3, "three")
    for name in "bcd":
        assert page_text(make_pdf(tmp_path / f"{name}.pdf", [name]), 1).strip() == name
    assert len(pdfs._waiting) == pdfs.KEPT
    assert changed.ended
    with pytest.raises(KeyboardInterrupt), pdfs.open_document(path) as broken:
        raise KeyboardInterrupt
    assert broken.ended
    with pytest.raises(glie.DocumentError, match=r"gone\.pdf: cannot be read: No such file"):
        page_text(tmp_path / "gone.pdf", 1)


def test_after_three_pages_that_take_too_much_a_file_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they take it for: here their text is quick, and the picture for OCR is not."""
    monkeypatch.setattr(pdfs, "SECONDS", 1)
    fan = b"/X Do " * 10
    drawing = b"0 0 m 600 700 l S " * 20
    kids = b" ".join(b"%d 0 R" % number for number in range(5, 5 + 6))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources"
    page += b"<</XObject<</X 11 0 R>>>>>>"
    others = {f"page{number}": page for number in range(2, 7)}
    path = raw_pdf(
        tmp_path / "heavy.pdf",
        fan,
        *[fan] * 6,
        drawing,
        pages=b"<</Type/Pages/Kids[%s]/Count 6>>" % kids,
        page=page,
        **others,
    )
    killed, gone = list[pdfs.OpenDocument](), pdfs.OpenDocument._gone

    def counted(self: pdfs.OpenDocument) -> glie.DocumentError:
        killed.append(self)
        return gone(self)

    monkeypatch.setattr(pdfs.OpenDocument, "_gone", counted)
    with pytest.raises(glie.DocumentError, match=r"^heavy\.pdf, page 1: cannot be "):
        read(path)
    assert len(killed) == pdfs.MOST_KILLED
    with pytest.raises(glie.DocumentError, match=r"heavy\.pdf: given up: 3 pages took too much"):
        page_text(path, 6)


def test_a_reader_that_fails_in_its_own_way_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["one"])
    (tmp_path / "site").mkdir()
    for source, says in (
        ("print('hello')", r"a\.pdf: damaged \(the process that reads it answered b'hello"),
        (
            "raise SystemExit(7)",
            r"a\.pdf: damaged \(the process that reads it ended with exit code \d",
        ),
    ):
        (tmp_path / "site" / "sitecustomize.py").write_text(source)
        with monkeypatch.context() as patch:
            patch.setattr("sys.path", [tmp_path / "site", *sys.path])
            with pytest.raises(glie.DocumentError, match=says):
                page_text(path, 1)
    with pdfs.open_document(path) as found:
        process = found._process
        process.send_signal(signal.SIGINT)
        process.wait()
        with pytest.raises(glie.DocumentError, match=r"ended by itself|takes more"):
            found.picture(1, 100)
    assert page_text(path, 1).strip() == "one"
