"""What a search can be restricted to: ids, and metadata. The same for every store.

A filter on metadata is JSON, `{"year": {">=": 2020}}`, or text, `year >= 2020`. Both are read into
one tree, which says whether a page matches.
"""

from __future__ import annotations

from glie.filters.ids import distinct_ids
from glie.filters.json_form import from_json
from glie.filters.text_form import parse
from glie.filters.tree import (
    And,
    AnyOf,
    Compare,
    Exists,
    Filter,
    Not,
    Or,
    Prefix,
    all_of,
    canonical,
)

__all__ = [
    "And",
    "AnyOf",
    "Compare",
    "Exists",
    "Filter",
    "Not",
    "Or",
    "Prefix",
    "all_of",
    "canonical",
    "distinct_ids",
    "from_json",
    "parse",
]
