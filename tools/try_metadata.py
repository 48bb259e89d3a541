"""Check the metadata of a wheel: whether it installs on each Python and system that it names.

python tools/try_metadata.py WHEEL        (make wheel)

uv resolves `glie[all]` at the pins of constraints.txt for each, from wheels alone: nothing is
installed, so neither the Pythons nor the systems need to be here.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = ("linux", "macos", "windows")
MACOS = "15.0"  # the oldest that tesserocr has wheels for


def metadata_of(wheel: Path) -> email.message.Message:
    packed = zipfile.ZipFile(wheel)
    (name,) = [one for one in packed.namelist() if one.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(packed.read(name))


def check_fields(found: email.message.Message) -> None:
    """What PyPI and pip read."""
    named = re.findall(r"Python :: (3\.\d+)", str(found.get_all("Classifier")))
    assert named == list(PYTHONS), named
    assert found["Requires-Python"] == f">={PYTHONS[0]}"
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["License-Expression"] == "Apache-2.0"
    needs: dict[str, set[str]] = {extra: set() for extra in found.get_all("Provides-Extra", [])}
    for line in found.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == '([\w-]+)'", marker)
        if extra:
            needs[extra[1]].add(requirement.strip())
    for name in set(needs) - {"bench", "dev", "docs", "fuzz"}:  # for working on glie
        assert needs[name], name
        assert needs[name] <= needs["all"], name


def resolve(wheel: Path, python: str, system: str) -> int:
    """How many packages `glie[all]` takes there."""
    with tempfile.TemporaryDirectory() as name:
        wanted = Path(name) / "wanted.in"
        wanted.write_text(f"glie[all] @ {wheel.resolve().as_uri()}\n")
        command = ["uv", "pip", "compile", wanted, "--quiet", "--no-annotate", "--no-header"]
        command += ["--constraint", ROOT / "constraints.txt", "--only-binary", ":all:"]
        command += ["--python-version", python, "--python-platform", system]
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True, text=True, check=False,
            env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": MACOS},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"Python {python} on {system}: {done.stderr}")
    return len(done.stdout.splitlines())


def main() -> None:
    wheel = Path(sys.argv[1])
    check_fields(metadata_of(wheel))
    for python in PYTHONS:
        counts = [f"{system} {resolve(wheel, python, system)}" for system in SYSTEMS]
        print(f"glie[all] resolves on Python {python}, packages: {', '.join(counts)}")


if __name__ == "__main__":
    main()
