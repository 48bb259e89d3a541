"""The tables of docs/ that show measured figures, from one file: docs/figures.json.

    python tools/figures.py                                   write the tables into the pages
    python tools/figures.py add NAME RESULTS.json COMMAND     add what `glie evaluate --to` measured
    python tools/figures.py bench ROWS.jsonl                  what `make bench` measured

A page has `<!-- figures: NAME -->`, the table, and `<!-- end -->`. A table of figures.json has a
title for each column, its rows, and the commands that measured them. tests/test_docs.py asserts
that the pages are up to date, and that README.md and docs/results.md agree with the file.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FILE = DOCS / "figures.json"
MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def table(made: dict[str, Any]) -> str:
    """A table as Markdown, with its commands below."""
    lines = [made["columns"], ["---"] * len(made["columns"]), *made["rows"]]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"\n{text}\n" + "".join(f"    {command}\n" for command in made["commands"]) + "\n"


def filled(text: str, tables: dict[str, Any]) -> str:
    """A page with its tables as the file has them."""
    return MARKED.sub(lambda match: match[1] + table(tables[match[2]]) + match[3], text)


def measured(results: Path) -> list[list[str]]:
    """Rows of a results.json: method, set, budget, nDCG@5, bytes a page."""
    return [
        [
            row["method"],
            row["dataset"],
            "all" if row["k"] is None and row["budget_bytes"] is None else
            f"{row['budget_bytes']} bytes" if row["budget_bytes"] else f"k = {row['k']}",
            f"{row['ndcg']:.3f}",
            f"{row['bytes_per_page']:,.0f}",
        ]
        for row in json.loads(results.read_text())["rows"]
    ]  # fmt: skip


def ratios(rows: Path) -> list[list[str]]:
    """Rows of `make bench`: what, ours, another's, how many times as fast ours is, the goal."""

    def shown(number: float, unit: str) -> str:
        digits = max(0, 2 - math.floor(math.log10(number))) if number else 0
        return f"{number:,.{min(digits, 2)}f} {unit}"

    table = []
    for row in map(json.loads, rows.read_text().splitlines()):
        ours, theirs, unit, goal = row["ours"], row["theirs"], row["unit"], row["goal"]
        other = times = ""
        if theirs is not None:
            other = f"{row['peer']}: {shown(theirs, unit)}"
            ratio = ours / theirs if unit.endswith("/s") else theirs / ours
            times = f"{ratio:.1f}"
        if goal:
            number, measure = goal.split()
            met = ratio >= float(number) if measure == "times" else ours <= float(number)
            goal += ", met" if met else ", missed"
        table.append([row["what"], shown(ours, unit), other, times, goal])
    return table


def main() -> None:
    tables = read() if FILE.exists() else {}
    if sys.argv[1:2] == ["add"]:
        _, _, name, results, command = sys.argv
        columns = ["method", "set", "budget", "nDCG@5", "bytes a page"]
        tables[name] = {"columns": columns, "rows": measured(Path(results)), "commands": [command]}
    elif sys.argv[1:2] == ["bench"]:
        columns = ["what", "glie", "another", "times as fast", "goal"]
        tables["bench"] = {
            "columns": columns,
            "rows": ratios(Path(sys.argv[2])),
            "commands": ["make bench"],
        }
        print(table(tables["bench"]))
    if len(sys.argv) > 1:
        FILE.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if filled(text, tables) != text:
            page.write_text(filled(text, tables))
            print(f"{page.relative_to(ROOT)}: tables written")


if __name__ == "__main__":
    main()
