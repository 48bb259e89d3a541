"""Searching one committed state: by vectors, by words, or by both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.identity import EncoderId
from glie.index.snapshot import Snapshot
from glie.index.words import Mask
from glie.lexical.query import Query, parse
from glie.search.hybrid import WordScores, hybrid, lexical
from glie.search.options import LATE, LEXICAL, SearchOptions, checked_queries
from glie.search.results import Hits, hits_of
from glie.search.two_stage import two_stage


def search_state(
    state: Snapshot, codec: Codec, place: Path, queries: Any, options: SearchOptions
) -> list[Hits]:
    """The best pages for each query; `Index.search` says what the options mean."""
    questions = _questions(state, place, options)
    if questions is not None and options.mode == LEXICAL:
        return hits_of(lexical([words for _, words in questions], options.top), state.record)
    encoder = EncoderId.of(state.manifest.encoder)
    weighted = encoder is not None and encoder.weighted
    checked = checked_queries(
        queries, state.manifest.dim, place, normalize=options.normalize, weighted=weighted
    )
    shortlist = options.shortlist
    if shortlist is None:
        shortlist = codec.shortlist_for(len(state))
    selection = state.select(options, codec)
    if questions is None:
        return hits_of(two_stage(selection, checked, options.top, shortlist), state.record)
    if len(questions) != len(checked):
        raise InputError(f"text: found {len(questions)} for {len(checked)} queries")
    hits = []
    for q, (allowed, words) in enumerate(questions):
        mine = selection if allowed is None else state.select(options, codec, allowed)
        ranking = hybrid(mine, checked.slice(q, q + 1), [words], options.top, shortlist)
        hits += hits_of(ranking, state.record)
    return hits


def _questions(
    state: Snapshot, place: Path, options: SearchOptions
) -> list[tuple[Mask | None, WordScores]] | None:
    """For each text, the positions that may be found (None: all) and the scores of its words; None
    if words are not searched."""
    words = state.words
    if options.mode == LATE or (options.mode is None and None in (words, options.text)):
        return None
    if options.text is None:
        raise InputError(f"mode {options.mode!r}: expected text, the words of each query")
    if words is None:
        raise InputError(
            f"{place}: no page has text, so words cannot be searched; search with mode 'late', or "
            "read the texts of its documents with `glie compact --text`"
        )
    within, found = state.allowed(options.ids, options.filter), []
    for question in options.text:
        query = question if isinstance(question, Query) else parse(question, words.analyzer)
        allowed = words.allowed(query, within)
        found.append((allowed, words.scores(query, allowed)))
    return found
