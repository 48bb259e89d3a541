"""Test an installed wheel in an empty environment: its files, and what the base install can do.

python -P tools/try_wheel.py WHEEL        (make wheel)
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import numpy as np

import glie

SOURCE = Path(__file__).parent.parent / "src"
HEAVY = ("torch", "transformers", "fastapi", "PIL", "sklearn", "pytest")
GENERATED = {".pyc", ".nbi", ".nbc"}


def holds_all(wheel: Path) -> int:
    """Check that the wheel has every file of the package and no other; returns their number."""
    there = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.is_file()}
    there = {name for name in there if Path(name).suffix not in GENERATED}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == there, sorted(packed ^ there)
    return len(packed)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    glie_command = Path(sysconfig.get_path("scripts")) / "glie"
    return subprocess.run(
        [glie_command, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def works(folder: Path) -> None:
    """Compress, store, search and verify, from Python and on the command line."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(40, 128)) for _ in range(12)]
    pages = glie.Pages(arrays, ids=[f"{i}.pdf#1" for i in range(12)], normalize=True)
    for codec in (glie.Codec(k=4), glie.Codec(bytes_per_page=520)):
        path = folder / f"{codec.k}.glie"
        index = glie.Index.create(path, codec)
        index.add(pages)
        for i, page_id in enumerate(pages.ids):
            assert index.search([arrays[i]], top=1, normalize=True)[0].ids == [page_id]
        for verb in ("info", "verify", "compact"):
            done = command(verb, path)
            assert done.returncode == 0, done.stderr
    (folder / "a.txt").write_text("Tides turn twice a day.")
    done = command("index", folder / "a.txt", "--to", folder / "new.glie")
    assert done.returncode == 1, done.stdout
    assert 'pip install "glie[' in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def main() -> None:
    where = Path(glie.__file__)
    assert where.is_relative_to(sysconfig.get_path("purelib")), where
    found = [name for name in HEAVY if importlib.util.find_spec(name) is not None]
    assert not found, f"the base install is to be small, and holds {found}"
    files = holds_all(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        works(Path(folder))
    installed = len(list(importlib.metadata.distributions()))
    print(f"the wheel works: {files} files; {installed} packages with it and pip")


if __name__ == "__main__":
    main()
