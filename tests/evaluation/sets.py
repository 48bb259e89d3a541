"""Small question sets in the BEIR format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.test_ingest import WordEncoder

PAGES = [
    {"_id": "p1", "title": "Energy", "text": "tidal power from the sea"},
    {"_id": "p2", "title": "", "text": "rotor blades and their coating"},
    {"_id": "p3", "text": "holiday allowance of staff"},
]


QUESTIONS = [
    {"_id": "q1", "text": "blades coating"},
    {"_id": "q2", "text": "holiday allowance"},
    {"_id": "q3", "text": "never judged"},
]


QRELS = "query-id\tcorpus-id\tscore\nq1\tp2\t1\nq2\tp3\t2\nq2\tp1\t0\n"


class TextWords(WordEncoder):
    def encode_pages(self, pages: Any) -> Any:
        return self.encode_queries(pages)


def write_set(
    folder: Path, pages: Any = PAGES, questions: Any = QUESTIONS, qrels: str = QRELS
) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", pages), ("queries", questions)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder
