"""Test an installed wheel in a clean environment: its files, and what works without extras.

python -P tools/try_wheel.py WHEEL [--cli]        (make wheel)

--cli: the extra `cli` is installed, so the command works as well.
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
CLI = ("typer", "rich")
GENERATED = {".pyc", ".nbi", ".nbc"}


def holds_all(wheel: Path) -> int:
    """Every file of the package, and nothing besides."""
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


def works(folder: Path, *, cli: bool) -> None:
    """Compress, store, search and verify: from Python, and with `cli` on the command line."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(40, 128)) for _ in range(12)]
    pages = glie.Pages(arrays, ids=[f"{i}.pdf#1" for i in range(12)], normalize=True)
    for codec in (glie.Codec(k=4), glie.Codec(bytes_per_page=520)):
        path = folder / f"{codec.k}.glie"
        index = glie.Index.create(path, codec)
        index.add(pages)
        for i, page_id in enumerate(pages.ids):
            assert index.search([arrays[i]], top=1, normalize=True)[0].ids == [page_id]
        index.verify()
        for verb in ("info", "verify", "compact") if cli else ():
            done = command(verb, path)
            assert done.returncode == 0, done.stderr
    if not cli:
        done = command("--help")
        says = 'glie: the command line needs an optional part: pip install "glie[cli]"\n'
        assert (done.returncode, done.stderr) == (1, says), done
        return
    (folder / "a.txt").write_text("Tides turn twice a day.")
    done = command("index", folder / "a.txt", "--to", folder / "new.glie")
    assert done.returncode == 1, done.stdout
    assert 'pip install "glie[' in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def main() -> None:
    where = Path(glie.__file__)
    assert where.is_relative_to(sysconfig.get_path("purelib")), where
    cli = "--cli" in sys.argv
    found = [
        name
        for name in (HEAVY if cli else HEAVY + CLI)
        if importlib.util.find_spec(name) is not None
    ]
    assert not found, f"the base install is to be small, and holds {found}"
    files = holds_all(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        works(Path(folder), cli=cli)
    installed = len(list(importlib.metadata.distributions()))
    what = "with the command line" if cli else "without extras"
    print(f"the wheel works {what}: {files} files; {installed} packages with it and pip")


if __name__ == "__main__":
    main()
