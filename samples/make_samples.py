"""Make a folder of sample PDFs to index and search.

Eight documents of an invented company, Ostrel Tidal, which builds and runs tidal turbines: a report
with tables, a slide deck with charts, a two-column article, a handbook, a manual, a laboratory
protocol, an inspection report with a site map, a scan without a text layer; and a Markdown note.

    python samples/make_samples.py FOLDER

The words are in samples/text, in the small markup that `flow` reads. The same files come out byte
for byte on every run.
"""

import argparse
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pypdfium2 as pdfium
from PIL import Image, ImageFilter
from reportlab.graphics.charts.barcharts import VerticalBarChart
from reportlab.graphics.charts.linecharts import HorizontalLineChart
from reportlab.graphics.charts.piecharts import Pie
from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, Rect, String
from reportlab.graphics.shapes import Path as Curve
from reportlab.lib.colors import HexColor, white
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfmetrics import registerFont, stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    FrameBreak,
    KeepTogether,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
)

ORG = "Ostrel Tidal"
TEXT = Path(__file__).parent / "text"
SEED = 4471
SCAN_DPI = 200
NAVY, TEAL, SAND = HexColor(0x17365D), HexColor(0x2A8C8C), HexColor(0xD9A441)
GREY, RULE, PALE = HexColor(0x55606B), HexColor(0xC5CED6), HexColor(0xE9EEF3)
COLORS = (NAVY, TEAL, SAND, RULE)
MARGIN, GAP = 60.0, 22.0

Box = tuple[float, float, float, float]
Styles = dict[str, ParagraphStyle]


@dataclass(frozen=True)
class Layout:
    """Page size, type, and the text frames (x, y, width, height) of the first and later pages."""

    size: tuple[float, float]
    font: str
    body: float
    first: tuple[Box, ...]
    later: tuple[Box, ...]


@dataclass(frozen=True)
class Document:
    """A PDF to write; its words are in the text file of the same name."""

    path: str
    title: str
    pages: int
    layout: Layout
    owner: str = ORG


def side_by_side(x: float, y: float, height: float, *widths: float) -> tuple[Box, ...]:
    starts = [x + sum(widths[:i]) + GAP * i for i in range(len(widths))]
    return tuple((start, y, width, height) for start, width in zip(starts, widths, strict=True))


BOTTOM, WIDTH, HEIGHT = MARGIN + 5, A4[0] - 2 * MARGIN, A4[1] - 2 * MARGIN - 5
HALF, BANNER = (WIDTH - GAP) / 2, 95.0
WHOLE = side_by_side(MARGIN, BOTTOM, HEIGHT, WIDTH)
HALVES = side_by_side(MARGIN, BOTTOM, HEIGHT, HALF, HALF)
BELOW = side_by_side(MARGIN, BOTTOM, HEIGHT - BANNER, HALF, HALF)
SLIDE = ((MARGIN, 335.0, 672.0, 66.0), *side_by_side(MARGIN, 55, 275, 420, 230))

PAGE = Layout(A4, "Helvetica", 11, WHOLE, WHOLE)
ARTICLE = Layout(
    A4, "Times", 11.5, ((MARGIN, BOTTOM + HEIGHT - BANNER, WIDTH, BANNER), *BELOW), HALVES
)
DECK = Layout((792.0, 446.0), "Helvetica", 12, SLIDE, SLIDE)
# The scan is drawn with an embedded font, so that it does not depend on the fonts of the system.
LETTER = Layout(A4, "Vera", 11, WHOLE, WHOLE)

DOCUMENTS = (
    Document("reports/annual-report-2023.pdf", "Annual Report 2023", 4, PAGE),
    Document("reports/quarterly-review-q3-2024.pdf", "Quarterly review Q3 2024", 5, DECK),
    Document("research/blade-coatings.pdf", "Marine growth on tidal turbine blades", 3, ARTICLE),
    Document("staff-handbook.pdf", "Staff handbook, edition 2024", 4, PAGE),
    Document("technical/plover-22-manual.pdf", "Plover 22 manual, edition 5", 4, PAGE),
    Document("technical/oil-protocol-lp07.pdf", "Laboratory protocol LP-07", 2, PAGE),
    Document("technical/ulverick-inspection.pdf", "Inspection report IR-2024-31", 3, PAGE),
)
SUPPLIER = "Hask and Dorrow Seals"
SCANNED = Document("scans/delivery-note-4471.pdf", "Delivery note 4471", 1, LETTER, SUPPLIER)
NOTE = "notes/maintenance-meeting.md"

FONTS = {
    "Helvetica": ("Helvetica", "Helvetica-Bold"),
    "Times": ("Times-Roman", "Times-Bold"),
    "Vera": ("Vera", "VeraBd"),
}


def styles(layout: Layout) -> Styles:
    size, (font, bold) = layout.body, FONTS[layout.font]
    body = ParagraphStyle("body", fontName=font, fontSize=size, leading=size * 1.5, spaceAfter=8)

    def derive(name: str, **changes: object) -> ParagraphStyle:
        return ParagraphStyle(name, parent=body, **changes)

    head = {"fontName": bold, "textColor": NAVY, "keepWithNext": 1}
    small = {"fontSize": size - 1.2, "leading": size * 1.25, "spaceAfter": 0}
    return {
        "": body,
        "=": derive("title", **head, fontSize=21, leading=25, spaceAfter=4),
        "~": derive("subtitle", textColor=GREY, spaceAfter=16),
        "#": derive("section", **head, fontSize=size + 4, leading=size * 1.8, spaceBefore=10),
        "##": derive("topic", **head | {"textColor": TEAL}, spaceBefore=4, spaceAfter=3),
        "^": derive("caption", **small | {"spaceAfter": 14}, textColor=GREY),
        "list": derive("list", leftIndent=18, bulletIndent=2, bulletFontSize=size, spaceAfter=4),
        "cell": derive("cell", **small),
        "number": derive("number", **small, alignment=TA_RIGHT),
        "cell bold": derive("cell bold", **small, fontName=bold),
        "number bold": derive("number bold", **small, fontName=bold, alignment=TA_RIGHT),
    }


# Text: from markup to the parts of a page.


def flow(text: str, style: Styles, width: float) -> list[Flowable]:
    """The parts of a page for marked-up text.

    Blocks are separated by blank lines and known by their first word: "=" title, "~" subtitle,
    "#" and "##" headings, "^" caption, "-" and "1." lists, "|" table with "|*" for a row in bold,
    "@" drawing, "---" next page, "+++" next frame. All else is a paragraph.
    """
    story: list[Flowable] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        mark, _, rest = block.partition(" ")
        if mark == "---":
            story.append(PageBreak())
        elif mark == "+++":
            story.append(FrameBreak())
        elif mark == "@":
            story += [DRAWINGS[rest](), Spacer(1, 6)]
        elif mark == "|":
            story += [table(block, style, width), Spacer(1, 8)]
        elif re.fullmatch(r"-|\d+\.", mark):
            story += [*bullets(block, style["list"]), Spacer(1, 5)]
        elif mark == "^":
            story[-2:] = [KeepTogether([*story[-2:], paragraph(rest, style[mark])])]
        elif mark in style:
            story.append(paragraph(rest, style[mark]))
        else:
            story.append(paragraph(block, style[""]))
    return story


def paragraph(text: str, style: ParagraphStyle, bullet: str | None = None) -> Paragraph:
    words = escape(" ".join(text.split())).replace("'", "\u2019")
    return Paragraph(words, style, bulletText=bullet)


def bullets(block: str, style: ParagraphStyle) -> list[Flowable]:
    items = re.split(r"^(-|\d+\.) ", block, flags=re.MULTILINE)[1:]
    marks = [mark.replace("-", "\u2022") for mark in items[::2]]
    return [paragraph(text, style, mark) for mark, text in zip(marks, items[1::2], strict=True)]


def table(block: str, style: Styles, width: float) -> Table:
    lines = block.replace("\n ", " ").splitlines()
    rows = [[cell.strip() for cell in line.lstrip("|*").split("|")] for line in lines]
    strong = [i == 0 or line.startswith("|*") for i, line in enumerate(lines)]
    kinds = ["cell", *(column_kind(column[1:]) for column in list(zip(*rows, strict=True))[1:])]
    cells = [
        [
            paragraph(text, style[kind + " bold" * bold])
            for text, kind in zip(row, kinds, strict=True)
        ]
        for row, bold in zip(rows, strong, strict=True)
    ]
    rules = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("BACKGROUND", (0, 0), (-1, 0), PALE),
        ("LINEABOVE", (0, 0), (-1, 0), 1, NAVY),
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, RULE),
        ("LEFTPADDING", (1, 0), (-1, -1), 10),
        ("TOPPADDING", (0, 0), (-1, -1), 3.5),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 6),
    ]
    return Table(cells, column_widths(rows, style["cell bold"], width), style=rules)


def column_kind(cells: tuple[str, ...]) -> str:
    numbers = all(re.fullmatch(r"\(?£?[\d,.]+%?\)?", cell) for cell in cells)
    return "number" if numbers else "cell"


def column_widths(rows: list[list[str]], style: ParagraphStyle, width: float) -> list[float]:
    """Room for the longest cell of each column; if that is too much, at least for each word."""

    def widest(texts: Iterable[str]) -> float:
        widths = [stringWidth(text, style.fontName, style.fontSize) for text in texts]
        return 18 + float(max(widths))

    columns = list(zip(*rows, strict=True))
    whole = [widest(column) for column in columns]
    if sum(whole) <= width:
        return [width * wanted / sum(whole) for wanted in whole]
    least = [widest(" ".join(column).split()) for column in columns]
    share = (width - sum(least)) / (sum(whole) - sum(least))
    return [low + share * (high - low) for low, high in zip(least, whole, strict=True)]


# Charts and drawings. Every label is text, so that a search can find it.


def label(x: float, y: float, text: str, anchor: str = "start") -> String:
    return String(x, y, text, fontSize=9, textAnchor=anchor, fillColor=GREY)


@dataclass(frozen=True)
class Plot:
    """The data of a bar or line chart; `scale` is the lowest and highest value and the step."""

    size: tuple[float, float]
    unit: str
    names: list[str]
    series: dict[str, list[float]]
    scale: tuple[float, float, float]


def axes(chart: VerticalBarChart | HorizontalLineChart, plot: Plot) -> Drawing:
    """The chart with its axes, the unit above at the left and the legend at the right."""
    width, height = plot.size
    chart.x, chart.y, chart.width, chart.height = 26, 20, width - 32, height - 48
    chart.data, chart.categoryAxis.categoryNames = list(plot.series.values()), plot.names
    chart.valueAxis.valueMin, chart.valueAxis.valueMax, chart.valueAxis.valueStep = plot.scale
    for axis in (chart.categoryAxis, chart.valueAxis):
        axis.labels.fontSize, axis.labels.fillColor, axis.strokeColor = 9, GREY, GREY
    chart.valueAxis.visibleGrid, chart.valueAxis.gridStrokeColor = True, PALE
    drawing = Drawing(width, height)
    drawing.add(label(0, height - 10, plot.unit))
    for i, name in enumerate(plot.series):
        x = width - 64 * (len(plot.series) - i)
        drawing.add(Rect(x, height - 11, 8, 8, fillColor=COLORS[i], strokeColor=None))
        drawing.add(label(x + 12, height - 10, name))
    drawing.add(chart)
    return drawing


def bars(plot: Plot, number: str) -> Drawing:
    chart = VerticalBarChart()
    drawing = axes(chart, plot)
    chart.groupSpacing, chart.bars.strokeColor = 10, None
    chart.barLabelFormat, chart.barLabels.nudge = number, 7
    chart.barLabels.fontSize, chart.barLabels.fillColor = 8, GREY
    for i in range(len(plot.series)):
        chart.bars[i].fillColor = COLORS[i]
    return drawing


def curves(plot: Plot) -> Drawing:
    chart = HorizontalLineChart()
    drawing = axes(chart, plot)
    for i in range(len(plot.series)):
        chart.lines[i].strokeColor, chart.lines[i].strokeWidth = COLORS[i], 2.2
    return drawing


def generation() -> Drawing:
    sites = ["Skarrow Sound", "Ulverick Strait", "Brennick Point", "Cape Merrow"]
    series = {"Q3 2023": [19.8, 20.7, 9.1, 12.5], "Q3 2024": [24.6, 18.9, 9.4, 13.2]}
    plot = Plot((420, 220), "Electricity delivered (GWh)", sites, series, (0, 30, 5))
    return bars(plot, "%0.1f")


def growth() -> Drawing:
    seasons = ["2021", "2022", "2023"]
    series = {"silicone": [4.0, 7, 11], "copper": [3.0, 9, 31], "hydrogel": [6.0, 18, 39]}
    return bars(Plot((HALF, 165), "%", seasons, series, (0, 50, 10)), "%0.0f")


def availability() -> Drawing:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep"]
    series = {
        "2023": [92.8, 92.1, 93.4, 94.2, 94.9, 95.3, 95.0, 95.6, 94.8],
        "2024": [94.1, 93.6, 95.0, 95.8, 96.4, 96.9, 97.2, 91.3, 96.5],
    }
    return curves(Plot((420, 205), "Availability (%)", months, series, (90, 98, 2)))


def stations() -> Drawing:
    places = [str(i) for i in range(1, 10)]
    series = {
        "silicone": [22.0, 24, 21, 15, 9, 4, 2, 1, 1],
        "copper": [58.0, 62, 64, 52, 28, 9, 4, 1, 1],
        "hydrogel": [72.0, 78, 80, 66, 34, 12, 5, 3, 1],
    }
    return curves(Plot((HALF, 165), "%", places, series, (0, 100, 20)))


def revenue() -> Drawing:
    shares = {"Electricity": 68, "Turbine sales": 19, "Service contracts": 9, "Research grants": 4}
    pie = Pie()
    pie.x, pie.y, pie.width, pie.height = 30, 18, 185, 185
    pie.data, pie.slices.strokeColor, pie.slices.strokeWidth = list(shares.values()), white, 1.5
    drawing = Drawing(420, 220)
    drawing.add(pie)
    for i, (name, share) in enumerate(shares.items()):
        pie.slices[i].fillColor = COLORS[i]
        drawing.add(Rect(260, 149 - 26 * i, 9, 9, fillColor=COLORS[i], strokeColor=None))
        drawing.add(label(275, 150 - 26 * i, f"{name} {share}%"))
    return drawing


def site_map() -> Drawing:
    """Ulverick Strait: two rows of turbines, the export cable with its joints, and the shore."""
    drawing = Drawing(WIDTH, 260)
    drawing.add(Rect(0, 0, WIDTH, 260, fillColor=PALE, strokeColor=None))
    shore = [WIDTH, 0, WIDTH, 260, 395, 260, 372, 220, 390, 180, 366, 120, 380, 75, 360, 30, 372, 0]
    drawing.add(Polygon(shore, fillColor=HexColor(0xF3EAD3), strokeColor=SAND))
    cable = Curve(strokeColor=NAVY, strokeWidth=1.6, fillColor=None)
    cable.moveTo(45, 130)
    cable.lineTo(270, 130)
    cable.curveTo(310, 130, 330, 150, 410, 150)
    drawing.add(cable)
    for i in range(10):
        x, y, text_y = (55 + 48 * i, 195, 206) if i < 5 else (55 + 48 * (i - 5), 65, 46)
        drawing.add(Line(x, y, x, 130, strokeColor=NAVY, strokeWidth=0.6))
        drawing.add(Circle(x, y, 6, fillColor=TEAL, strokeColor=white))
        drawing.add(label(x, text_y, f"U-{i + 1:02}", "middle"))
    for name, x, y in (("J1", 127, 130), ("J2", 272, 130), ("J3", 334, 142)):
        drawing.add(Rect(x - 4, y - 4, 8, 8, fillColor=SAND, strokeColor=NAVY))
        drawing.add(label(x, y + 9, name, "middle"))
    drawing.add(Rect(410, 142, 16, 16, fillColor=NAVY, strokeColor=None))
    drawing.add(Line(12, 12, 107, 12, strokeColor=GREY, strokeWidth=1.5))
    drawing.add(Polygon([340, 250, 335, 233, 345, 233], fillColor=GREY, strokeColor=None))
    for x, y, text in (
        (12, 242, "Ulverick Strait"),
        (400, 126, "Substation"),
        (400, 114, "Velden Road"),
        (415, 30, "Mainland"),
        (12, 17, "500 metres"),
        (337, 221, "N"),
    ):
        drawing.add(label(x, y, text))
    return drawing


def signature() -> Drawing:
    """A signature on its line, and a stamp set at an angle."""
    pen = Curve(strokeColor=NAVY, strokeWidth=1.5, fillColor=None)
    pen.moveTo(20, 32)
    for curve in (
        (45, 85, 50, 50, 34, 26),
        (60, 60, 70, 40, 74, 30),
        (85, 52, 92, 38, 96, 30),
        (110, 60, 118, 10, 128, 34),
        (140, 46, 150, 30, 178, 38),
    ):
        pen.curveTo(*curve)
    stamp = Group(Rect(0, 0, 160, 44, fillColor=None, strokeColor=TEAL, strokeWidth=2))
    for y, text in ((26, "GOODS RECEIVED"), (9, "23 SEP 2024")):
        stamp.add(String(80, y, text, fontName="VeraBd", fontSize=12, textAnchor="middle"))
    stamp.translate(290, 10)
    stamp.rotate(6)
    drawing = Drawing(WIDTH, 80)
    for part in (pen, stamp, Line(0, 20, 200, 20, strokeColor=GREY)):
        drawing.add(part)
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "generation": generation,
    "availability": availability,
    "revenue": revenue,
    "growth": growth,
    "stations": stations,
    "site map": site_map,
    "signature": signature,
}


# Files.


def typeset(document: Document) -> bytes:
    layout, output = document.layout, io.BytesIO()

    def footer(canvas: Canvas, _: BaseDocTemplate) -> None:
        right = layout.size[0] - MARGIN
        canvas.setStrokeColor(TEAL)
        canvas.line(MARGIN, 42, right, 42)
        canvas.setFillColor(GREY)
        canvas.setFont(FONTS[layout.font][0], 8.5)
        canvas.drawString(MARGIN, 28, f"{document.owner}  |  {document.title}")
        canvas.drawRightString(right, 28, f"{canvas.getPageNumber()} of {document.pages}")

    # Footers come at the end of a page, so that they also end its text layer.
    templates = [
        PageTemplate(name, [Frame(*box, 0, 0, 0, 0) for box in boxes], onPageEnd=footer)
        for name, boxes in (("first", layout.first), ("later", layout.later))
    ]
    options = {"pagesize": layout.size, "pageTemplates": templates, "invariant": 1}
    writer = BaseDocTemplate(output, title=document.title, author=document.owner, **options)
    text = (TEXT / Path(document.path).with_suffix(".txt").name).read_text("utf-8")
    body_width = layout.first[min(1, len(layout.first) - 1)][2]
    writer.build([NextPageTemplate("later"), *flow(text, styles(layout), body_width)])
    if writer.page != document.pages:
        raise ValueError(f"{document.path} has {writer.page} pages, not {document.pages}")
    return output.getvalue()


def scan(pdf: bytes) -> bytes:
    """The first page as a scanner would give it: a crooked, grey, noisy picture without text."""
    bitmap = pdfium.PdfDocument(pdf)[0].render(scale=SCAN_DPI / 72, grayscale=True)
    page = bitmap.to_pil().rotate(0.9, Image.Resampling.BICUBIC, fillcolor=255)
    pixels = np.asarray(page.filter(ImageFilter.GaussianBlur(0.7)), dtype=np.float32)
    shade = np.linspace(0.98, 0.9, pixels.shape[1], dtype=np.float32)
    noise = np.random.default_rng(SEED).normal(0, 7, pixels.shape)
    grey = np.clip(pixels * 0.9 * shade + 18 + noise, 0, 255).astype(np.uint8)
    picture, output = io.BytesIO(), io.BytesIO()
    Image.fromarray(grey).save(picture, "JPEG", quality=55, dpi=(SCAN_DPI, SCAN_DPI))
    canvas = Canvas(output, pagesize=A4, invariant=1)
    canvas.drawImage(ImageReader(picture), 0, 0, *A4)
    canvas.save()
    return output.getvalue()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make(folder: Path) -> None:
    for name in FONTS["Vera"]:
        registerFont(TTFont(name, f"{name}.ttf"))
    for document in DOCUMENTS:
        write(folder / document.path, typeset(document))
    write(folder / SCANNED.path, scan(typeset(SCANNED)))
    write(folder / NOTE, (TEXT / Path(NOTE).name).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the sample documents.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where to write them")
    folder = parser.parse_args().folder
    make(folder)
    pages = sum(document.pages for document in (*DOCUMENTS, SCANNED))
    print(f"{folder}: {len(DOCUMENTS) + 1} PDFs with {pages} pages, 1 note")


if __name__ == "__main__":
    main()
