"""How well pages match, beside what unrelated questions reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glie
from glie import strength
from glie.encoders import Encoder, load_encoder
from glie.retriever import Retriever
from glie.strength import UNRELATED, Question, strengths

TEXTS = [
    "Capital expenditure in 2018 was 1,577 million dollars and was spent on turbines.",
    "Rotor blades are inspected twice a year, and copper paint is renewed.",
    "The harbour is closed in winter, and ferries stay in port.",
    "Holiday allowance is 25 days for full-time staff.",
    "Revenue grew by 4 per cent, and the board proposes a dividend.",
    "Seals were seen near the cable; the survey boat kept away from them.",
    "Part 3M-2018-114 is a seal for the main shaft.",
    "The grid operator asked for less power in October.",
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder()


@pytest.fixture
def retriever(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retriever:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index = glie.Index.create(tmp_path / "x.glie", glie.Codec(bytes_per_page=520), encoder=encoder)
    index.add(glie.Pages(encoder.encode_pages(TEXTS)), texts=TEXTS)
    return Retriever(tmp_path / "x.glie", encoder)


@pytest.mark.parametrize(
    "question",
    [
        "capital expenditure in 2018",
        "How often are the blades inspected?",
        "3M-2018-114",
        "dividend",
    ],
)
def test_real_questions_match_well(retriever: Retriever, question: str) -> None:
    hits = retriever.search(question, 3)
    assert not hits.weak
    assert hits.strength is not None
    assert hits.strength[0] > 1
    assert len(hits.strength) == len(hits)
    assert hits.take([0]).strength == hits.strength[:1]
    assert hits.language is None


@pytest.mark.parametrize("mode", [None, "late", "lexical"])
@pytest.mark.parametrize("question", ["zzzz qqqq", "Wer hat den Roman geschrieben?", UNRELATED[4]])
def test_nothing_matches_well(retriever: Retriever, question: str, mode: str | None) -> None:
    hits = retriever.search(question, 3, mode=mode)
    assert hits.weak
    assert all(found < 1 for found in hits.strength or [])


def test_strength_orders_pages_of_one_question(retriever: Retriever) -> None:
    hits = retriever.search("capital expenditure on turbines in 2018", 8)
    found = hits.strength or []
    assert hits.ids[0] == "0"
    assert found[0] == max(found)
    assert found[0] > 2 * sorted(found)[len(found) // 2]


def test_the_language_of_a_question(retriever: Retriever) -> None:
    assert retriever.search("Wie hoch waren die Investitionen?").language == "German"
    # without the encoder nothing is known of what it reads
    assert retriever.search("Wie hoch waren die Investitionen?", mode="lexical").language is None


def test_a_level_is_found_once(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    encode = retriever.encode

    def counted(question: str) -> object:
        asked.append(question)
        return encode(question)

    monkeypatch.setattr(retriever, "encode", counted)
    retriever.search("turbines")
    assert asked == ["turbines", *UNRELATED]
    first = retriever.search("turbines").strength
    assert len(asked) == len(UNRELATED) + 2
    # another process reads it from the user's cache
    for remembered in (strength._levels, strength._samples):
        monkeypatch.setattr(remembered, "_values", {})
    assert retriever.search("turbines").strength == first
    assert len(asked) == len(UNRELATED) + 3
    # a cache that is damaged is none
    (kept,) = (Path(strength.cache_folder()) / "levels").iterdir()
    kept.write_text("{")
    monkeypatch.setattr(strength._levels, "_values", {})
    assert retriever.search("turbines").strength == first
    # the next state of the index has a level of its own
    retriever.index.add(glie.Pages([np.eye(3, retriever.index.dim, dtype=np.float32)], ids=["new"]))
    asked.clear()
    retriever.search("turbines")
    assert asked[1:] == list(UNRELATED)


def test_by_meaning_alone(encoder: Encoder, tmp_path: Path) -> None:
    """An index without words, as that of an encoder that looks at pages."""
    index = glie.Index.create(tmp_path / "x.glie", glie.Codec(bytes_per_page=520), encoder=encoder)
    index.add(glie.Pages(encoder.encode_pages(TEXTS)))
    ours = Retriever(index, encoder)
    assert not ours.search("capital expenditure in 2018").weak
    found = ours.search("blade inspection")
    assert (found.ids[0], found.weak, len(found.strength or [])) == ("1", False, 8)


def test_an_encoder_that_knows_its_own_questions_alone(retriever: Retriever) -> None:
    """As one that reads vectors which were made before. Its answers stay what they were."""
    known = {"turbines": retriever.encode("turbines")}
    theirs = Retriever(retriever.index, lambda texts: [known[text] for text in texts])
    found = theirs.search("turbines")
    assert (found.strength, found.weak) == (None, False)
    assert found.ids == retriever.search("turbines").ids
    assert (theirs.search("turbines", mode="lexical").strength or [0])[0] > 1
    with pytest.raises(KeyError):
        theirs.search("blades")


def test_few_pages_and_none(encoder: Encoder, tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "x.glie", encoder=encoder)
    ours = Retriever(index, encoder)
    assert (ours.search("x").strength, ours.search("x").weak) == (None, False)
    index.add(glie.Pages(encoder.encode_pages(TEXTS[:1])), texts=TEXTS[:1])
    assert len(ours.search("turbines").strength or []) == 1
    asked = Question(None, encoder.encode_queries(["turbines"])[0])
    assert strengths(index, asked, [], ours.encode) == []
