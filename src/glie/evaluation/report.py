"""Write a report: results.json, report.md with its plots, and a self-contained report.html."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glie.evaluation.encoded import Encoded
from glie.evaluation.methods import CITATIONS
from glie.evaluation.results import Results
from glie.evaluation.tables import Table, geometry, rows, tables
from glie.geometry import CorpusGeometry

STYLE = """
:root { color-scheme: light dark; --ink: #222; --faint: #555; --line: #e3e3e3; --rule: #888;
  --ground: #fff; --code: #f5f5f5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --faint: #a8a8a8; --line: #3a3a3a; --rule: #777; --ground: #161616;
    --code: #242424; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.8rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; border-bottom: 1px solid var(--rule); }
.wide { overflow-x: auto; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
@media (prefers-color-scheme: dark) { img { filter: invert(0.9) hue-rotate(180deg); } }
figcaption, .note { color: var(--faint); font-size: 0.9em; }
pre { background: var(--code); padding: 0.6rem 0.8rem; overflow-x: auto; }
"""


def write_report(
    folder: Path,
    results: Results,
    sets: Sequence[Encoded],
    command: str,
    notes: Sequence[str] = (),
    corpora: Sequence[CorpusGeometry] = (),
) -> None:
    """Write results, tables and plots into a folder."""
    from glie.evaluation.plots import plot_geometry, plots

    folder.mkdir(parents=True, exist_ok=True)
    pictures, shown = plots(results, folder), [_sets(sets), *tables(results)]
    if corpora:
        plot_geometry(corpora, folder / "geometry.png")
        pictures["geometry.png"] = "Intrinsic dimension of the pages, a dot for each page."
        shown.append(geometry(corpora))
    report = _Report(command, _about(sets, notes), shown, pictures, _cited(results))
    written: dict[str, Any] = {
        "command": command,
        "encoder": sets[0].encoder.to_dict(),
        "notes": list(notes),
        "sets": [
            {"name": e.name, "pages": len(e.page_ids), "questions": len(e.queries), "dim": e.dim}
            for e in sets
        ],
        "rows": rows(results),
        "tables": {table.name: table._asdict() for table in shown},
        "results": [_short(result.to_dict()) for result in results.all],
    }
    (folder / "results.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
    (folder / "report.md").write_text(_markdown(report), encoding="utf-8")
    (folder / "report.html").write_text(_html(report, folder), encoding="utf-8")


class _Report(NamedTuple):
    """The contents of a report in any format."""

    command: str
    about: list[str]
    tables: Sequence[Table]
    pictures: dict[str, str]  # captions, by file
    cited: list[str]


def _short(result: dict[str, Any]) -> dict[str, Any]:
    """A result without the scores of each question, which are in its own file."""
    return {name: value for name, value in result.items() if name not in ("each", "setting")}


def _sets(sets: Sequence[Encoded]) -> Table:
    body = [
        [
            encoded.name,
            f"{len(encoded.page_ids):,}",
            f"{len(encoded.queries):,}",
            f"{encoded.lengths.mean():,.0f}",
            str(encoded.dim),
        ]
        for encoded in sets
    ]
    return Table("sets", "Sets", ["set", "pages", "questions", "vectors a page", "D"], body)


def _about(sets: Sequence[Encoded], notes: Sequence[str]) -> list[str]:
    encoder = sets[0].encoder
    return [f"Encoder: {encoder.name} (revision {encoder.revision}).", *notes]


def _cited(results: Results) -> list[str]:
    shown = {result.setting.method for result in results.all}
    return [f"{name}: {text}" for name, text in CITATIONS.items() if name in shown]


def _markdown(report: _Report) -> str:
    parts = ["# What compression keeps\n", f"    {report.command}\n"]
    parts += [f"{line}\n" for line in report.about]
    for table in report.tables:
        parts += [f"## {table.title}\n", table.markdown()]
    parts.append("## Plots\n")
    parts += [f"![{caption}]({name})\n\n{caption}\n" for name, caption in report.pictures.items()]
    parts.append("## Methods\n")
    parts += [f"- {line}" for line in report.cited]
    return "\n".join(parts).rstrip() + "\n"


def _html(report: _Report, folder: Path) -> str:
    body = ["<h1>What compression keeps</h1>", f"<pre>{html.escape(report.command)}</pre>"]
    body += [f"<p>{html.escape(line)}</p>" for line in report.about]
    for name, caption in report.pictures.items():
        data = base64.b64encode((folder / name).read_bytes()).decode()
        source = f"data:image/png;base64,{data}"
        text = html.escape(caption)
        body.append(
            f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'
        )
    for table in report.tables:
        body.append(f"<h2>{html.escape(table.title)}</h2>")
        heading = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
        lines = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
            for row in table.rows
        )
        body.append(
            f'<div class="wide"><table><thead><tr>{heading}</tr></thead>'
            f"<tbody>{lines}</tbody></table></div>"
        )
        if table.note:
            body.append(f'<p class="note">{html.escape(table.note)}</p>')
    cited = "".join(f"<li>{html.escape(line)}</li>" for line in report.cited)
    body.append(f"<h2>Methods</h2><ul>{cited}</ul>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What compression keeps</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )
