"""The file of postings: what is stored comes back, what is damaged is noticed, merges are exact."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glie.errors import CorruptIndexError
from glie.index.lexical_file import LEXICAL_HEADER, LexicalFile
from glie.lexical import postings as lexical_postings
from glie.storage import checksum
from tests.lexical.files import lexical_bytes, merged_bytes

Pages = list[Counter[str]]


def written(path: Path, data: bytes) -> LexicalFile:
    path.write_bytes(data)
    return LexicalFile(path)


def random_pages(rng: np.random.Generator, pages: int, terms: int = 60) -> Pages:
    """Pages of few and many words, some empty."""
    return [
        Counter(f"w{min(n, terms)}" for n in rng.zipf(1.4, rng.integers(0, 40)))
        for _ in range(pages)
    ]


def assert_holds(file: LexicalFile, pages: Pages) -> None:
    assert file.pages == len(pages)
    np.testing.assert_array_equal(file.lengths, [min(page.total(), 65_535) for page in pages])
    assert file.total_length == file.lengths.sum(dtype=np.int64)
    for term in {"nowhere"}.union(*pages):
        rows, frequencies = file.postings(term)
        assert rows.tolist() == [row for row, page in enumerate(pages) if term in page]
        assert frequencies.tolist() == [min(page[term], 255) for page in pages if term in page]


def test_the_example_of_the_format(tmp_path: Path) -> None:
    """The file that docs/format.md describes, built bit by bit."""
    bits = "1 01 1 1 101011101110011101101010110001 010 1 1 1 011".replace(" ", "")
    stream = int(bits[::-1], 2).to_bytes(6, "little")
    directory = struct.pack("<4Q", 0x96AE6E05, 0, 0, len(stream))
    sections = [part.ljust(64, b"\0") for part in (directory, stream, struct.pack("<2H", 1, 4))]
    head = b"GLIELEX\0" + struct.pack("<II5Q", 1, 0, 2, 2, 3, len(stream), 5)
    head = (head + struct.pack("<3Q", *map(checksum, sections))).ljust(120, b"\0")
    expected = head + struct.pack("<Q", checksum(head)) + b"".join(sections)
    pages = [Counter(tax=1), Counter(tax=3, net=1)]
    assert lexical_bytes(pages, 5) == expected
    assert_holds(written(tmp_path / "x.lex", expected), pages)


@pytest.mark.parametrize(
    "pages",
    [
        [],
        [Counter()],
        [Counter(), Counter(), Counter()],
        [Counter(a=1)],
        [Counter(a=254, b=255, c=256, d=10**9)],
        [Counter(the=1 + row % 3) for row in range(200)],
        [Counter(), Counter({"東京": 2, "3m-2018-114": 1}), Counter(), Counter({"東京": 1})],
        [Counter(f"w{n}" for n in range(600)), Counter()],
    ],
)
def test_what_is_stored_comes_back(tmp_path: Path, pages: Pages) -> None:
    file = written(tmp_path / "x.lex", lexical_bytes(pages, 77))
    assert_holds(file, pages)
    assert file.segment == 77
    assert file.terms == len(set().union(*pages))
    assert file.bytes == (tmp_path / "x.lex").stat().st_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 150))
def test_random_pages_come_back(tmp_path: Path, seed: int, pages: int) -> None:
    made = random_pages(np.random.default_rng(seed), pages)
    assert_holds(written(tmp_path / "x.lex", lexical_bytes(made, seed)), made)


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (30, 0, 90), (100, 100)])
def test_a_merge_is_a_file_made_from_the_pages(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    parts, kept = [], Pages()
    for number, size in enumerate(sizes):
        pages = random_pages(rng, size)
        rows = np.flatnonzero(rng.random(size) < 0.6)
        parts.append((written(tmp_path / f"{number}.lex", lexical_bytes(pages, number)), rows))
        kept += [pages[row] for row in rows]
    assert merged_bytes(parts, 9) == lexical_bytes(kept, 9)


def test_a_merge_keeps_what_was_cut_off(tmp_path: Path) -> None:
    page = Counter(a=300, b=100_000)
    file = written(tmp_path / "x.lex", lexical_bytes([page], 1))
    assert merged_bytes([(file, np.array([0]))], 1) == lexical_bytes([page], 1)


def test_terms_with_one_fingerprint_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_postings, "fingerprint", lambda term: len(term))
    pages = [Counter(aa=200, bb=100, c=1), Counter(bb=2), Counter(ddd=1)]
    file = written(tmp_path / "x.lex", lexical_bytes(pages, 1))
    assert (file.terms, file.lengths.tolist()) == (3, [301, 2, 1])
    lists = file.all_postings().lists
    assert lists.fingerprints.tolist() == [1, 2, 3]
    assert lists.counts.tolist() == [1, 2, 1]
    assert lists.frequencies.tolist() == [1, 255, 2, 1]


def values(path: Path) -> object:
    """All that a file says; its bits may be of other lists, but not of impossible ones."""
    file = LexicalFile(path)
    lists, lengths = file.all_postings()
    found = [file.postings(term) for term in ("a", "b", "w5", "nowhere")]
    return (
        file.pages,
        file.segment,
        [array.tolist() for array in (*lists, lengths)],
        [(rows.tolist(), often.tolist()) for rows, often in found],
    )


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.lex"
    pages = [Counter(f"w{n}" for n in range(40)), Counter(a=3), Counter(a=1, b=2)]
    data = lexical_bytes(pages, 5)
    path.write_bytes(data)
    values(path)
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        with pytest.raises(CorruptIndexError):
            values(path)
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptIndexError):
            values(path)


def resealed(data: bytes) -> bytes:
    """A file with the checksums of what it holds now, if its sizes still fit."""
    fields = list(LEXICAL_HEADER.unpack(data[: LEXICAL_HEADER.size]))
    terms, pages, stream = fields[4], fields[3], fields[6]
    at = LEXICAL_HEADER.size
    for section, size in enumerate((16 * (-(-terms // 256) + 1), stream, 2 * pages)):
        size = -(-size // 64) * 64
        fields[8 + section] = checksum(data[at : at + size])
        at += size
    head = LEXICAL_HEADER.pack(*fields)[:-8]
    return head + struct.pack("<Q", checksum(head)) + data[LEXICAL_HEADER.size :]


def test_hostile_files_do_no_harm(tmp_path: Path) -> None:
    """With right checksums, a file says something possible or is refused."""
    rng = np.random.default_rng(0)
    path = tmp_path / "x.lex"
    pages = [*random_pages(rng, 80), Counter(f"w{n}" for n in range(300)), *[Counter(a=1)] * 70]
    data = lexical_bytes(pages, 5)
    assert resealed(data) == data
    refused = 0
    for _ in range(600):
        harmed = bytearray(data)
        for at in rng.integers(16, len(data), rng.integers(1, 4)):
            harmed[at] = rng.integers(256)
        path.write_bytes(resealed(bytes(harmed)))
        try:
            values(path)
        except CorruptIndexError as error:
            assert str(error).startswith(f"{path}: damaged: ")  # noqa: PT017
            refused += 1
    assert 50 < refused < 600


@pytest.mark.parametrize(
    ("field", "value"), [(3, 2**62), (4, 2**62), (5, 2**62), (6, 2**62), (1, 9)]
)
def test_sizes_are_checked_before_anything_is_made(tmp_path: Path, field: int, value: int) -> None:
    data = lexical_bytes([Counter(a=1)], 5)
    fields = list(LEXICAL_HEADER.unpack(data[: LEXICAL_HEADER.size]))
    fields[field] = value
    head = LEXICAL_HEADER.pack(*fields)[:-8]
    with pytest.raises(CorruptIndexError, match="damaged"):
        written(tmp_path / "x.lex", head + struct.pack("<Q", checksum(head)) + data[128:])
