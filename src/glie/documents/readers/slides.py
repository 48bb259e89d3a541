"""PowerPoint files (.pptx), by python-pptx: a page a slide, with its notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glie.documents.readers.blocks import in_a_line
from glie.documents.readers.packed import check_packed

TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
PARAGRAPH = "{http://schemas.openxmlformats.org/drawingml/2006/main}p"


def pages(path: str) -> list[str]:
    import pptx

    check_packed(path, "a PowerPoint file", ".pptx")
    return [_slide(slide) for slide in pptx.Presentation(path).slides]


def _slide(slide: Any) -> str:
    title = slide.shapes.title
    said = [*_said(title)] if title is not None else []
    # python-pptx makes a new object of a shape each time; its element stays
    others = [
        shape for shape in slide.shapes if title is None or shape.element is not title.element
    ]
    for shape in others:
        said += _said(shape)
    for relation in slide.part.rels.values():  # SmartArt
        if relation.reltype.endswith("/diagramData") and not relation.is_external:
            said += _diagram(relation.target_part.blob)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        said += [f"Notes: {notes}"] if notes else []
    return "\n\n".join(said)


def _said(shape: Any) -> Iterator[str]:
    """The text of a shape: of a text box, a table, a chart, or of all in a group."""
    if hasattr(shape, "shapes"):
        for part in shape.shapes:
            yield from _said(part)
    elif getattr(shape, "has_table", False):
        rows = ["\t".join(in_a_line(c.text) for c in row.cells) for row in shape.table.rows]
        yield "\n".join(row for row in rows if row.strip())
    elif getattr(shape, "has_chart", False):
        yield "\n".join(_chart(shape.chart))
    elif shape.has_text_frame:
        text = shape.text_frame.text.replace("\v", "\n").strip()
        if text:
            yield text


def _chart(chart: Any) -> Iterator[str]:
    """Its title, and its numbers as a table."""
    if chart.has_title and chart.chart_title.has_text_frame:
        yield chart.chart_title.text_frame.text
    for plot in chart.plots:
        yield "\t".join(["", *map(str, plot.categories)]).rstrip()
        for series in plot.series:
            values = ("" if value is None else f"{value:.15g}" for value in series.values)
            yield "\t".join([series.name, *values])


def _diagram(xml: bytes) -> list[str]:
    from lxml import etree

    tree = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True))
    said = ["".join(t.text or "" for t in p.iter(TEXT)) for p in tree.iter(PARAGRAPH)]
    return [text for text in said if text.strip()]
