"""Documents that are read as a whole: Word, PowerPoint, Excel, HTML, EPUB and e-mail."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import zipfile
from pathlib import Path

import docx
import openpyxl
import pytest

import glie
from glie.documents import FoundDocument, count_pages, opened, page_text
from glie.documents.counting import PageCounter
from glie.documents.readers import packed, web
from glie.documents.readers.blocks import PAGE_BREAK, Block, paginate
from glie.documents.text import TEXT_PAGE_CHARACTERS
from tests.documents.office_files import (
    BOMB,
    MAKERS,
    PARTS,
    TABLE,
    make_docx,
    make_eml,
    make_epub,
    make_html,
    make_xlsx,
    rendered_break,
    replace_part,
)
from tests.documents.test_documents import read

TEXTS = ["Tidal energy in the north", "Rotor blades & cables", "Zoë's holiday"]


@pytest.mark.parametrize("suffix", MAKERS)
def test_every_kind_says_the_same_on_the_same_pages(tmp_path: Path, suffix: str) -> None:
    path = MAKERS[suffix](tmp_path / f"a{suffix}", TEXTS)
    pages, problems = read(path)
    assert problems == []
    assert [(page.number, page.origin) for page in pages] == [(n, "text") for n in (1, 2, 3)]
    assert [text in page.text for text, page in zip(TEXTS, pages, strict=True)] == [True] * 3
    assert pages[0].text.startswith("Quarterly report\n\n")
    for row in TABLE:
        assert "\t".join(row) in pages[0].text
    assert "nobody sees this" not in "".join(page.text for page in pages)
    assert page_text(path, 2) == pages[1].text
    assert count_pages(FoundDocument(path.name, path)) == 3
    with PageCounter() as counter:
        assert counter.count(FoundDocument(path.name, path)) == (3, 0)
    assert pages[0].words() == []
    with pytest.raises(glie.DocumentError, match="has no picture; make a PDF of it"):
        pages[0].image()


def test_what_only_one_kind_has(tmp_path: Path) -> None:
    first = {suffix: read(make(tmp_path / f"a{suffix}", TEXTS)).pages[0].text for suffix, make in MAKERS.items()}  # fmt: skip
    assert first[".pptx"].endswith("\tspring\tautumn\nturbines\t4\t6.5\n\nNotes: Thank the ferry crew")  # fmt: skip
    assert "Harbour\t1577\t12.5%\tTRUE\t2024-03-01" in first[".xlsx"]
    assert "From: Zoë Müller <zoe@example.org>\nTo: all@example.org" in first[".eml"]
    assert first[".eml"].endswith("Attachments: invoice 7.pdf")


def test_pages_as_word_showed_them(tmp_path: Path) -> None:
    """A break that the author asked for is noted a second time; a page that is only long is not
    cut."""
    document = docx.Document()
    document.add_paragraph("first page")
    asked = document.add_paragraph().add_run()
    asked.add_break(docx.enum.text.WD_BREAK.PAGE)
    second = document.add_paragraph().add_run()
    second._r.append(rendered_break())
    second.add_text("second page. " + "It is a long one. " * 300)
    second._r.append(rendered_break())
    second.add_text("third page")
    before = document.add_paragraph("fourth page")
    before.paragraph_format.page_break_before = True
    document.add_section()
    document.add_paragraph("fifth page")
    document.save(str(tmp_path / "a.docx"))
    pages = read(tmp_path / "a.docx").pages
    said = [" ".join(page.text.split()[:2]) for page in pages]
    assert said == ["first page", "second page.", "third page", "fourth page", "fifth page"]


def test_what_word_does_not_show_and_what_it_shows_elsewhere(tmp_path: Path) -> None:
    make_docx(tmp_path / "a.docx", ["kept"])
    ns = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    more = (
        b"<w:p><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:ins><w:r><w:t>inserted"
        b"</w:t></w:r></w:ins><w:r><w:tab/><w:t>tabbed</w:t></w:r><w:hyperlink><w:r><w:t>linked</w:t>"
        b"</w:r></w:hyperlink></w:p><w:sdt><w:sdtContent><w:p><w:r><w:t>controlled</w:t></w:r></w:p>"
        b"</w:sdtContent></w:sdt><w:p><w:r><w:t>noted</w:t><w:footnoteReference w:id='2'/></w:r></w:p>"
    )
    replace_part(tmp_path / "a.docx", "word/document.xml", lambda x: x.replace(b"<w:sectPr", more + b"<w:sectPr", 1))  # fmt: skip
    notes = f'<w:footnotes {ns}><w:footnote w:id="2"><w:p><w:r><w:t>a footnote</w:t></w:r></w:p></w:footnote></w:footnotes>'
    link = b'<Relationship Id="rId99" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes" Target="footnotes.xml"/></Relationships>'
    replace_part(tmp_path / "a.docx", "word/_rels/document.xml.rels", lambda x: x.replace(b"</Relationships>", link))  # fmt: skip
    with zipfile.ZipFile(tmp_path / "a.docx", "a") as archive:
        archive.writestr("word/footnotes.xml", notes)
    kind = b'<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"/></Types>'
    replace_part(tmp_path / "a.docx", "[Content_Types].xml", lambda x: x.replace(b"</Types>", kind))
    text = read(tmp_path / "a.docx").pages[0].text
    assert text.endswith("inserted\ttabbedlinked\n\ncontrolled\n\nnoted\n\na footnote")
    assert "deleted" not in text


def test_a_blank_slide_keeps_its_number(tmp_path: Path) -> None:
    make = MAKERS[".pptx"]
    make(tmp_path / "a.pptx", ["one", "two", "three"])
    replace_part(tmp_path / "a.pptx", "ppt/slides/slide2.xml", lambda x: x.replace(b"Slide 2", b"").replace(b"two", b""))  # fmt: skip
    pages = read(tmp_path / "a.pptx").pages
    assert [(page.number, page.origin) for page in pages] == [(1, "text"), (2, "blank"), (3, "text")]  # fmt: skip


def test_long_documents_become_pages_of_sensible_length(tmp_path: Path) -> None:
    document = docx.Document()
    for chapter in range(3):
        document.add_heading(f"Chapter {chapter}", 1)
        for i in range(20):
            document.add_paragraph(f"Paragraph {chapter}.{i} " + "goes on and on " * 30)
    document.save(str(tmp_path / "long.docx"))
    book = openpyxl.Workbook()
    book.active.title = "Tides"
    book.active.append(["place", "height"])
    for i in range(400):
        book.active.append([f"place number {i}", i / 7])
    book.save(tmp_path / "long.xlsx")
    pages = read(tmp_path / "long.docx").pages
    assert all(len(page.text) <= TEXT_PAGE_CHARACTERS + 400 for page in pages)
    assert all(page.text.startswith("Chapter") for page in pages)  # repeated where it goes on
    words = " ".join(page.text for page in pages).split()
    assert words.count("Paragraph") == 60
    sheets = read(tmp_path / "long.xlsx").pages
    assert len(sheets) > 3
    assert all(page.text.startswith("Tides\nplace\theight\n") for page in sheets[1:])
    assert sheets[0].text.startswith("Tides\n\nplace\theight\n")
    assert sum(page.text.count("place number") for page in sheets) == 400


def test_pages_of_blocks() -> None:
    long = Block("text", "word " * 30)
    pages = paginate([Block("heading", "Title"), long, long, PAGE_BREAK, PAGE_BREAK, long, PAGE_BREAK], 200)  # fmt: skip
    assert [page.count("word") for page in pages] == [30, 30, 0, 30]
    assert [page.startswith("Title") for page in pages] == [True, True, False, False]
    assert paginate([]) == []
    assert paginate([Block("text", "a" * 500)], 200) == ["a" * 200, "a" * 200, "a" * 100]
    # a heading near the end of a page starts the next
    assert paginate([long, Block("heading", "Next"), Block("text", "b")], 200) == ["word " * 30, "Next\n\nb"]  # fmt: skip


def test_html_as_a_browser_shows_it() -> None:
    def shown(html: str) -> str:
        return "|".join(block.text for block in web.blocks(html))

    assert shown("<title>Tides</title><p>a <b>bold</b>\n word<p>next<br>line") == "Tides|a bold word|next\nline"  # fmt: skip
    assert shown("<title>Tides</title><h1>Tides</h1>one") == "Tides|one"
    assert shown("<ul><li>one<li>two</ul>") == "- one|- two"
    assert shown("<pre>a  b\n  c</pre>") == "a  b\n  c"
    assert shown("<p hidden>not</p><template>not</template><noscript>not</noscript>seen") == "seen"
    assert shown('<img alt="a lighthouse"><a href=x>link</a>') == "a lighthouse link"
    # a table inside another is for layout
    layout = "<table><tr><td><p>left<table><tr><td>a<td>b</table><td>right</table>"
    assert shown(layout) == "left|a\tb|right"
    assert web.decoded("é".encode("latin-1") + b"<meta charset=iso-8859-1>")[0] == "é"
    assert web.decoded("é".encode("utf-16")) == "é"
    assert web.decoded("é€".encode("cp1252")) == web.decoded("é€".encode()) == "é€"
    assert web.decoded(b"<meta charset=klingon>\xc3\xa9")[-1] == "é"


def outcome(path: Path) -> tuple[str, str | None]:
    """The text of a file, or what is said of it."""
    try:
        return "".join(page.text for page in read(path).pages), None
    except glie.DocumentError as error:
        return "", str(error)


def harmed(folder: Path) -> dict[str, str]:
    """A file that cannot be read of every kind and sort, and what is said of it."""
    said = {}

    def note(name: str, message: str) -> Path:
        said[name] = f"{name}: {message}"
        return folder / name

    for suffix, make in MAKERS.items():
        sound = make(folder / f"sound{suffix}", TEXTS).read_bytes()
        note(f"empty{suffix}", "the file is empty").write_bytes(b"")
        if suffix in (".html", ".eml"):
            continue
        note(f"text{suffix}", "not a").write_text("Dear Sir or Madam")
        note(f"cut{suffix}", "damaged, or not a").write_bytes(sound[: len(sound) // 2])
        note(f"other{suffix}", "").write_bytes(b"PK\3\4 nothing")
        if suffix != ".epub":
            note(f"old{suffix}", "encrypted, or in the format of Office 97; save").write_bytes(packed.OLE + sound)  # fmt: skip
    (folder / "word.pptx").write_bytes((folder / "sound.docx").read_bytes())
    note("word.pptx", "damaged, or not a PowerPoint file (")
    note("picture.html", "not HTML, whatever its name says").write_bytes(b"\x89PNG\r\n\0\0")
    note("blank.html", "it holds no text").write_text("<p> </p>")
    note("letter.eml", "not an e-mail, whatever its name says").write_text("Dear Sir or Madam")
    locked = '<encryption><CipherReference URI="OPS/text/chapter%200.xhtml"/></encryption>'
    make_epub(note("locked.epub", "encrypted (DRM)"), TEXTS, **{"META-INF__encryption.xml": locked})
    return said


def test_harmed_files_are_named_and_the_rest_is_indexed(tmp_path: Path) -> None:
    for name, message in harmed(tmp_path).items():
        with pytest.raises(glie.DocumentError) as caught:
            read(tmp_path / name)
        assert str(caught.value).startswith(message), name
        assert "\n" not in str(caught.value)
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("suffix", PARTS)
def test_bombs_of_entities_are_not_unpacked(tmp_path: Path, suffix: str) -> None:
    """Eleven lines that stand for a hundred billion words."""
    path = MAKERS[suffix](tmp_path / f"bomb{suffix}", TEXTS)

    def armed(xml: bytes) -> bytes:
        start = xml.index(b"?>") + 2 if b"?>" in xml else 0
        inside = xml.index(b">", start) + 1
        return xml[:start] + BOMB.encode() + xml[start:inside] + b"&e11;" + xml[inside:]

    replace_part(path, PARTS[suffix], armed)
    text, error = outcome(path)
    assert error is None or error.startswith(path.name)
    assert "haha" not in text


def test_bombs_of_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a megabyte that unpacks to more than may be read, and one that takes all memory."""
    path = make_docx(tmp_path / "bomb.docx", ["small"])
    filler = b"<w:p><w:r><w:t>" + b"word " * (60 << 20)
    replace_part(path, "word/document.xml", lambda xml: xml.replace(b"<w:p>", filler, 1))
    assert path.stat().st_size < 2 << 20
    monkeypatch.setattr(opened, "MEMORY", 300 << 20)
    with pytest.raises(glie.DocumentError, match=r"^bomb\.docx: (it takes more memory|damaged)"):
        read(path)
    with zipfile.ZipFile(path, "a") as archive:  # only its directory claims so much
        archive.writestr("word/media/a.bin", b"0")
        archive.filelist[-1].file_size = 5 << 30
    with pytest.raises(glie.DocumentError, match=r"^bomb\.docx: it would unpack to 5\.\d GB"):
        read(path)


def test_a_document_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "SECONDS", 0)
    path = tmp_path / "deep.html"
    path.write_text("<div>" * 200_000 + "end")
    with pytest.raises(glie.DocumentError, match=r"^deep\.html: it takes more memory or time"):
        read(path)


def test_damage_never_raises_anything_else(tmp_path: Path) -> None:
    """Bytes changed in the archive and, because most of these are found by its checksums, inside
    its parts."""
    for seed, suffix in enumerate(MAKERS):
        path = MAKERS[suffix](tmp_path / f"a{suffix}", TEXTS)
        sound = path.read_bytes()
        for step in range(6):
            at = (step * 7919 + seed * 104_729) % len(sound)
            if step % 2 and suffix not in (".html", ".eml"):
                path.write_bytes(sound)
                with zipfile.ZipFile(path) as archive:
                    names = [name for name in archive.namelist() if name.endswith(("xml", "rels"))]
                part = names[at % len(names)]
                replace_part(path, part, lambda x, at=at: x[: at % len(x)] + b"\xff<" + x[at % len(x) + 2 :])  # type: ignore[misc]  # fmt: skip
            else:
                path.write_bytes(sound[:at] + b"\xff\0<" + sound[at + 3 :])
            error = outcome(path)[1]
            assert error is None or error.startswith(path.name)


def test_an_e_mail_with_nothing_as_it_should_be(tmp_path: Path) -> None:
    path = make_eml(tmp_path / "a.eml", ["body"])
    data = b"From: =?utf-8?q?broken\nTo: <<<@@>>, ;;\nDate: never\nSubject: =?klingon?b?!!?=\n"
    data += b"Content-Type: text/plain; charset=klingon\n\nK\xc3\xa4se"
    path.write_bytes(data)
    text = read(path).pages[0].text
    assert text.endswith("Käse")
    assert "Date: never" in text
    path.write_bytes(b"Subject: =?utf-8?q?a=?=\nContent-Type: multipart/mixed\n\nno parts")
    with contextlib.suppress(glie.DocumentError):
        read(path)


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    for make, suffix in ((make_docx, ".docx"), (make_html, ".html"), (make_xlsx, ".xlsx")):
        make(tmp_path / f"a{suffix}", TEXTS)
    code = f"""
import sys, pathlib, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("docx", "openpyxl", "selectolax") else found(name, *more)
import glie
from glie.documents import FoundDocument, read_document
for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):
    try:
        read_document(FoundDocument(path.name, path))
    except glie.MissingExtraError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f'reading {suffix} files needs an optional part: pip install "glie[office]"'
        for suffix in (".docx", ".html", ".xlsx")
    ]
