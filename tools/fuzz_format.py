"""Coverage-guided fuzzing of the readers of an index, without checksums.

    python tools/fuzz_format.py [--seconds 600] [--corpus FOLDER]

A forged file can have a valid checksum. So checksums are switched off here: libFuzzer (by atheris,
the extra `fuzz`) changes one file of a small index, and all of the index is read, searched,
examined and repaired. Compiled loops check their bounds. A crash, a hang, a gigabyte more of memory
or an error that is not a GlieError ends the run and leaves the input, which `--corpus` repeats.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SECONDS_AN_INPUT, MEGABYTES = 30, 3000
RUN = "run"  # of the second process: libFuzzer does not return


def fuzz(folder: Path, options: list[str]) -> None:
    """Make small indexes and the corpus, then fuzz their files without end."""
    import atheris

    sys.path.insert(0, str(ROOT))
    compiled = [f"glie.kernels.{path.stem}" for path in (ROOT / "src/glie/kernels").glob("*.py")]
    with atheris.instrument_imports(include=["glie"], exclude=compiled):
        from tools.fuzz import TARGETS

        import glie
        from glie.candidates import build
        from glie.index import (
            blocks,
            candidate_files,
            column_file,
            lexical_file,
            segment,
            side_files,
        )
        from glie.index import folder as folders
        from glie.index.snapshot import Snapshot
    for module in (segment, blocks, side_files, candidate_files, lexical_file, column_file):
        module.checksum = lambda data: 0  # type: ignore[attr-defined]
    for name in ("digest_of", "json_digest"):  # of the codec's files, and of the manifest
        setattr(folders, name, lambda value, **named: "0" * 16)
    build.CANDIDATE_PAGES = 30
    opened = Snapshot.__init__

    def opened_afresh(self: Snapshot, folder: Any, manifest: Any, before: Any = None) -> None:
        opened(self, folder, manifest)  # segments that are open already are identified by checksum

    Snapshot.__init__ = opened_afresh  # type: ignore[method-assign]
    indexes = {name: target for name, target in TARGETS.items() if "index" in name}
    corpus, copy = folder / "corpus", folder / "copy"
    corpus.mkdir(exist_ok=True)
    files: list[tuple[str, Path]] = []
    for name, target in indexes.items():
        target.make(folder / name)
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and path.name != "lock":
                (corpus / f"{len(files)}").write_bytes(bytes([len(files)]) + path.read_bytes())
                files.append((name, path.relative_to(folder / name)))

    def one(data: bytes) -> None:
        name, path = files[data[0] % len(files) if data else 0]
        shutil.copytree(folder / name, copy)
        try:
            (copy / path).write_bytes(data[1:])
            readable = False
            with contextlib.suppress(glie.GlieError):
                indexes[name].read(copy)
                readable = True
            indexes[name].check(copy, readable)
        finally:
            shutil.rmtree(copy)

    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, help="inputs to begin with, left by an earlier run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.corpus is not None:
            shutil.copytree(arguments.corpus, folder / "corpus")
        options = [f"-max_total_time={arguments.seconds}", f"-timeout={SECONDS_AN_INPUT}"]
        options += [f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1", "-artifact_prefix=./"]
        options += ["-max_len=20000", "-len_control=0", "-use_value_profile=1"]
        environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": f"{name}/numba"}
        done = subprocess.run(
            [sys.executable, __file__, RUN, name, *options],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{done.stderr[-6000:]}\na fault was found; the input is in this folder")
        runs = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
        covered = re.findall(r"cov: (\d+)", done.stderr)
        kept = len(list((folder / "corpus").iterdir()))
        print(
            f"{int(runs[-1]):,} inputs run, no fault found; {covered[0]} branches covered by "
            f"undamaged files, {covered[-1]} in the end, by {kept:,} inputs"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == [RUN]:
        fuzz(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
