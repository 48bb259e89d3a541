"""Small documents of every kind that is read as a whole, and harmed ones."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from pathlib import Path

import docx
import openpyxl
import pptx
from docx.enum.text import WD_BREAK
from docx.oxml import OxmlElement
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

TABLE = [["Region", "Sales", "Share"], ["Harbour", "1577", "12.5%"], ["Orchard", "98.25", "7%"]]


def make_docx(path: Path, texts: Sequence[str]) -> Path:
    """A page for each text, by explicit breaks; the first has a heading and the table."""
    document = docx.Document()
    document.add_heading("Quarterly report", 1)
    for number, text in enumerate(texts):
        if number:
            document.add_paragraph().add_run().add_break(WD_BREAK.PAGE)
        document.add_paragraph(text)
        if number == 0:
            table = document.add_table(len(TABLE), len(TABLE[0]))
            for row, values in zip(table.rows, TABLE, strict=True):
                for cell, value in zip(row.cells, values, strict=True):
                    cell.text = value
    document.save(str(path))
    return path


def make_pptx(path: Path, texts: Sequence[str]) -> Path:
    """A slide for each text; the first has the table, a chart and notes."""
    deck = pptx.Presentation()
    for number, text in enumerate(texts):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = "Quarterly report" if number == 0 else f"Slide {number + 1}"
        slide.placeholders[1].text = text
        if number == 0:
            box = (Inches(1), Inches(4), Inches(5), Inches(2))
            table = slide.shapes.add_table(len(TABLE), len(TABLE[0]), *box).table
            for at, row in enumerate(TABLE):
                for column, value in enumerate(row):
                    table.cell(at, column).text = value
            data = CategoryChartData()
            data.categories = ["spring", "autumn"]
            data.add_series("turbines", (4, 6.5))
            slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *box, data)
            slide.notes_slide.notes_text_frame.text = "Thank the ferry crew"
    deck.save(str(path))
    return path


def make_xlsx(path: Path, texts: Sequence[str]) -> Path:
    """A sheet for each text; the first has the table, with numbers as numbers."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, text in enumerate(texts):
        sheet = book.create_sheet("Quarterly report" if number == 0 else f"Sheet {number + 1}")
        sheet.append([text])
        if number == 0:
            sheet.append(TABLE[0])
            sheet.append(["Harbour", 1577, 0.125, True, datetime.datetime(2024, 3, 1)])
            sheet.append(["Orchard", 98.25, 0.07])
            sheet["C3"].number_format = "0.0%"
            sheet["C4"].number_format = "0%"
    hidden = book.create_sheet("Hidden")
    hidden.append(["nobody sees this"])
    hidden.sheet_state = "hidden"
    book.save(path)
    return path


def _html(title: str, body: str) -> str:
    return f"<!DOCTYPE html><html><head><title>{title}</title></head><body>{body}</body></html>"


def _table() -> str:
    rows = ("".join(f"<td>{value}" for value in row) for row in TABLE)  # as browsers allow it
    return f"<table>{''.join(f'<tr>{row}' for row in rows)}</table>"


def make_html(path: Path, texts: Sequence[str]) -> Path:
    """A page for each text, where it is printed."""
    parts = [f"<p>{text}</p>" for text in texts]
    parts[0] += _table() + "<script>let hidden = '<p>nobody sees this'</script>"
    body = '<br style="page-break-before: always">'.join(parts)
    path.write_text(_html("Quarterly report", body), encoding="utf-8")
    return path


def make_epub(path: Path, texts: Sequence[str], **others: str) -> Path:
    """A chapter for each text."""
    names = [f"text/chapter {number}.xhtml" for number in range(len(texts))]
    items = "".join(
        f'<item id="c{i}" href="{name.replace(" ", "%20")}" media-type="application/xhtml+xml"/>'
        for i, name in enumerate(names)
    )
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(names)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc='
        '"http://purl.org/dc/elements/1.1/"><dc:title>Quarterly report</dc:title></metadata>'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("OPS/book.opf", package)
        for number, (name, text) in enumerate(zip(names, texts, strict=True)):
            table = _table() if number == 0 else ""
            html = f"<html><head><title/><script src='x'/></head><body><a id='a'/><p>{text}</p>"
            archive.writestr(f"OPS/{name}", f"{html}{table}</body></html>")
        for name, content in others.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def make_eml(path: Path, texts: Sequence[str]) -> Path:
    """A message for each text, each attached to the one before."""
    inner: EmailMessage | None = None
    for number in reversed(range(len(texts))):
        message = EmailMessage()
        message["Subject"] = "Quarterly report" if number == 0 else f"Message {number + 1}"
        message["From"] = "Zoë Müller <zoe@example.org>"
        message["To"] = "all@example.org"
        if number == 0:
            message.set_content("<p>in the other part</p>", "html")
            message.set_content(f"{texts[number]}\n\n" + "\n".join(map("\t".join, TABLE)))
            message.add_alternative(f"<p>{texts[number]}</p>", subtype="html")
            message.add_attachment(b"%PDF", "application", "pdf", filename="invoice 7.pdf")
        else:
            message.set_content(f"<p>{texts[number]}</p>", "html")
        if inner is not None:
            message.add_attachment(inner)
        inner = message
    assert inner is not None
    path.write_bytes(inner.as_bytes())
    return path


MAKERS: dict[str, Callable[[Path, Sequence[str]], Path]] = {
    ".docx": make_docx,
    ".pptx": make_pptx,
    ".xlsx": make_xlsx,
    ".html": make_html,
    ".epub": make_epub,
    ".eml": make_eml,
}

ENTITIES = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
BOMB = f'<!DOCTYPE x [<!ENTITY e0 "ha">{ENTITIES}]>'
# the part of each that a bomb of entities goes into
PARTS = {
    ".docx": "word/document.xml",
    ".pptx": "ppt/presentation.xml",
    ".xlsx": "xl/worksheets/sheet1.xml",
    ".epub": "OPS/book.opf",
}


def replace_part(path: Path, part: str, change: Callable[[bytes], bytes]) -> None:
    """Change one file inside an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[part] = change(members[part])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def rendered_break() -> object:
    """What Word notes where a page ended when it last showed the document."""
    return OxmlElement("w:lastRenderedPageBreak")
