"""Pin what the Makefile installs: constraints.txt, and the same with file hashes.

    python tools/lock.py [--upgrade]        (make lock)

uv resolves all extras for all systems. Present pins stay where pyproject.toml allows; --upgrade
resolves the newest versions. Only wheels count: nothing is built from source.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAIN, HASHED = ROOT / "constraints.txt", ROOT / "constraints-hashed.txt"
BESIDES = ["pip", "hatchling", "editables", "uv"]  # for installing, building and pinning
HEAD = """\
# What the commands of the Makefile install: the versions that were tested together.
# torch: the CPU build is enough; a CUDA build of the same version works as well.
"""
HASHED_HEAD = (
    HEAD
    + """\
# With the SHA-256 of every file, but for torch, whose builds come from several places: pip prefers
# a file whose hash it knows beforehand, and that would be the CUDA build.
"""
)
ANY_BUILD = "torch=="
PIN = re.compile(r"[\w.-]+==[^\\]+")


class Lock(dict[str, list[str]]):
    """Pins, with the hashes of their files."""

    @classmethod
    def read(cls, text: str) -> Lock:
        lock = cls()
        for line in text.splitlines():
            pin = PIN.match(line)
            if pin:
                hashes = lock.setdefault(pin[0].strip(), [])
            elif "--hash=" in line and not list(lock)[-1].startswith(ANY_BUILD):
                hashes.append(line.strip(" \\"))
        return lock

    def plain(self) -> str:
        return HEAD + "".join(f"{pin}\n" for pin in self)

    def hashed(self) -> str:
        return HASHED_HEAD + "".join(
            " \\\n    ".join([pin, *sorted(hashes)]) + "\n" for pin, hashes in self.items()
        )


def resolved(pins: str) -> Lock:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "besides.in").write_text("\n".join(BESIDES))
        (folder / "pins.txt").write_text(pins)
        command = ["uv", "pip", "compile", ROOT / "pyproject.toml", folder / "besides.in"]
        command += ["--constraint", folder / "pins.txt", "--python-version", "3.11"]
        command += ["--all-extras", "--universal", "--no-build", "--generate-hashes"]
        command += ["--no-annotate", "--no-header", "--quiet"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Lock.read(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upgrade", action="store_true", help="the newest versions")
    arguments = parser.parse_args()
    lock = resolved("" if arguments.upgrade else PLAIN.read_text())
    PLAIN.write_text(lock.plain())
    HASHED.write_text(lock.hashed())
    print(f"{len(lock)} pins, {sum(map(len, lock.values())):,} hashes")


if __name__ == "__main__":
    main()
