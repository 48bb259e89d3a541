"""Durable writes, checksums and canonical JSON."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xxhash

from glie import storage
from glie.storage import (
    canonical_json,
    checksum,
    digest,
    digest_of,
    json_digest,
    make_durably,
    rename_durably,
    replace_file,
    write_durably,
)


def test_checksums_are_xxh3() -> None:
    """The numbers that files on disk have carried from the first version."""
    assert checksum(b"") == 0x2D06800538D394C2
    assert digest(b"") == "2d06800538d394c2"
    assert digest_of([], bits=128) == "99aa06d3014798d86001c324468d497f"


def test_a_digest_has_all_its_leading_zeros() -> None:
    small = next(n for n in range(10_000) if checksum(str(n).encode()) < 2**60)
    assert digest(str(small).encode()) == xxhash.xxh3_64_hexdigest(str(small).encode())
    assert len(digest(str(small).encode())) == 16


@pytest.mark.parametrize("bits", [64, 128])
def test_parts_are_digested_end_to_end(bits: int) -> None:
    parts = [b"one", b"", b"and another"]
    whole = {64: xxhash.xxh3_64_hexdigest, 128: xxhash.xxh3_128_hexdigest}[bits]
    assert digest_of(iter(parts), bits=bits) == whole(b"oneand another")  # type: ignore[arg-type]


def test_arrays_are_buffers() -> None:
    array = np.arange(12, dtype=np.uint8)
    assert checksum(array) == checksum(array.tobytes())


def test_canonical_json_depends_on_the_values_alone() -> None:
    one, other = {"b": [1, "é"], "a": None}, {"a": None, "b": [1, "é"]}
    assert canonical_json(one) == canonical_json(other) == b'{"a":null,"b":[1,"\\u00e9"]}'
    assert canonical_json(one, ascii=False) == '{"a":null,"b":[1,"é"]}'.encode()
    assert json_digest(one) == digest(canonical_json(other))
    assert json_digest(one, ascii=False) == digest(canonical_json(other, ascii=False))
    assert json_digest(one) != json_digest(one, ascii=False)


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced from now on, in order."""
    real, paths = os.fsync, list[str]()

    def fsync(handle: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


@needs_proc
def test_each_write_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = synced(monkeypatch)
    make_durably(tmp_path / "folder")
    make_durably(tmp_path / "folder")  # which is there
    assert paths == [str(tmp_path)]
    file = tmp_path / "folder" / "file"
    write_durably(file, b"some bytes")
    assert (file.read_bytes(), paths[1:]) == (b"some bytes", [str(file)])
    rename_durably(file, tmp_path / "moved")
    assert not file.exists()
    assert (tmp_path / "moved").read_bytes() == b"some bytes"
    assert paths[2:] == [str(tmp_path)]


@needs_proc
def test_a_file_is_whole_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, paths = tmp_path / "file", synced(monkeypatch)
    file.write_bytes(b"old")
    replace_file(file, b"new")
    assert (file.read_bytes(), paths) == (b"new", [f"{file}.new"])


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, data: bytes) -> None:
        path.write_bytes(data[:1])
        raise OSError(28, "No space left on device")

    file = tmp_path / "file"
    file.write_bytes(b"old")
    monkeypatch.setattr(storage, "write_durably", fails)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"
