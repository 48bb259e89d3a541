"""The docs: examples run as they stand, links lead somewhere, and the hops of CONTRIBUTING are true."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import docs_site, figures

import glie
from glie.encoders import load_encoder
from tests.cli.conftest import Run, run  # noqa: F401 (a fixture)
from tests.conftest import make_arrays

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))]
PAGES += sorted(DOCS.glob("*.md"))
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def python_of(path: Path) -> list[str]:
    """The Python examples of a page."""
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def run_examples(name: str) -> None:
    """Run the Python of a document, in the current folder."""
    blocks = python_of(DOCS / name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


@pytest.mark.parametrize("name", ["engines.md"])  # tests/distributed runs that of ray.md
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(name)


def test_the_three_lines_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = python_of(ROOT / "README.md")
    arrays = make_arrays(3, dim=128)
    names: dict[str, Any] = {"arrays": arrays, "ids": ["a", "b", "c"], "queries": arrays[1:2]}
    exec(compile(block, "README.md", "exec"), names)
    assert names["hits"][0].ids[0] == "b"


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the fits, which take minutes."""
    monkeypatch.chdir(tmp_path)
    words, weak, budget, codebook, library, fits = python_of(DOCS / "guide.md")
    assert "glie.fit(" in fits
    arrays = make_arrays(4, dim=128)
    encoded = [([array], [f"{i}"], None) for i, array in enumerate(arrays)]
    names: dict[str, Any] = {"arrays": arrays[:2], "queries": arrays[1:2], "encoded": encoded}
    exec(compile(library, "docs/guide.md", "exec"), names)
    assert names["index"].ids == ["a.pdf#2", "0", "1", "2", "3"]
    exec(compile(words, "docs/guide.md", "exec"), names)
    assert (names["hits"].ids, names["others"].ids) == (["a.pdf#1"], ["a.pdf#2"])
    encoder, texts = load_encoder(), ["Revenue grew by 4 per cent.", "Blades are painted yearly."]
    glie.Index.create("reports.glie", encoder=encoder).add(
        glie.Pages(encoder.encode_pages(texts)), texts=texts
    )
    exec(compile(weak, "docs/guide.md", "exec"), names)
    assert (names["hits"].weak, names["hits"].language) == (True, None)
    made, rest = budget.split("\n", 1)
    names = {"glie": glie, "pages": glie.Pages(make_arrays(60, dim=128))}
    exec(compile(made.replace("my.glie", "other.glie"), "docs/guide.md", "exec"), names)
    names["index"].add(names["pages"])
    exec(compile(rest, "docs/guide.md", "exec"), names)
    assert [row.budget for row in names["rows"]] == [256, 520, 1040, None]
    assert len(names["small"]) == 60
    exec(compile(codebook, "docs/guide.md", "exec"), names)
    names["index"].add(names["pages"])
    assert names["index"].info().codebook_in == "shared"


def test_the_tutorial(tmp_path: Path) -> None:
    """Its commands in a shell, as a reader types them; `# NAME` is the document that is found."""
    text = (DOCS / "tutorial.md").read_text()
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    scripts, expected = "", []
    for language, block in blocks:
        if language == "python":
            scripts += f"{sys.executable} - <<'END'\n{block}END\n"
            continue
        for line in block.splitlines():
            command, _, name = line.partition("  #")
            found = name.strip()
            scripts += f"{command.rstrip()}{' --json' if found else ''}\n"
            expected += [found] if found else []
    folder = Path(sys.executable).parent
    variables = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "COLUMNS": "80"}
    done = subprocess.run(
        ["/bin/sh", "-e"], input=scripts, cwd=tmp_path, env=variables,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    hits = re.findall(r'"rank": 1,\s*"id": "([^"#]+)#\d+"', done.stdout)
    assert hits == expected
    assert len(expected) == 5
    assert "no damage found" in done.stdout
    assert re.search(r"^people\.md#1 0\.\d+$", done.stdout, re.MULTILINE)


def test_figures_come_from_one_file() -> None:
    """The marked tables are those of docs/figures.json; README and results.md agree with it."""
    tables = figures.read()
    marked = [page for page in PAGES if "<!-- figures:" in page.read_text()]
    assert marked
    for page in marked:
        text = page.read_text()
        assert figures.filled(text, tables) == text, f"{page.name}: run python tools/figures.py"
    readme = (ROOT / "README.md").read_text()
    results = (DOCS / "results.md").read_text().split("\n### Bytes\n")[1].split("\n### ")[0]
    for row in tables["kept"]["rows"]:
        assert f"| {' | '.join(row)} |" in readme
    named = ["slidevqa", "infovqa", "cranfield", "ottqa-pages", "covidqa-pages"]
    for name, (_, *ward_and_glie) in zip(named, tables["kept"]["rows"], strict=True):
        kept = [cell.strip("*") for cell in ward_and_glie]
        for who, cells in (("Ward, 1 bit", kept[:3]), ("**ours**", kept[3:])):
            (row,) = re.findall(rf"^\| {name}: {re.escape(who)} \|(.*)\|$", results, re.MULTILINE)
            assert re.findall(r"(\d+%)", row)[1:4] == cells
    measured = (DOCS / "performance.md").read_text() + (DOCS / "scale.md").read_text()
    for row in tables["databases"]["rows"]:
        for cell in row[1:]:
            assert cell in measured


@pytest.mark.parametrize("name", ["compare", "choose", "limits"])
def test_pages_of_the_site_state_no_figure_of_their_own(name: str) -> None:
    """Every nDCG@5 in them is one of docs/results.md."""
    results = (DOCS / "results.md").read_text() + (DOCS / "figures.json").read_text()
    for figure in re.findall(r"\b0\.\d{3}\b", (DOCS / f"{name}.md").read_text()):
        assert figure in results


def test_the_site_has_every_page() -> None:
    """mkdocs.yml names each; `make docs` builds them with --strict."""
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": ([\w-]+\.md)$", text, re.MULTILINE)
    there = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(named) == sorted({*there, *docs_site.BESIDES.values()})


def test_messages_in_troubleshooting_are_real() -> None:
    """What stands in the first column between backquotes is a message of the package."""
    source = "".join(path.read_text() for path in Path(glie.__file__).parent.rglob("*.py"))
    rows = re.findall(r"^\| (.*?) \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [part for row in rows for part in re.findall(r"`([^`]+)`", row)]
    for message in [one for one in quoted if not one.startswith("glie ")]:
        for part in message.split("..."):
            assert part.strip(' ,[]"') in source.replace('\\"', '"'), message


def test_the_readme_is_for_five_minutes() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    assert "make test" in text
    assert "make run" in text


def headings(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@pytest.mark.parametrize("page", PAGES[:2] + PAGES[3:], ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """In the project, or in the package."""
    text = page.read_text()
    named = re.findall(r"\b(?:tests|tools|benchmarks|samples)/[\w/]+\.\w+", text)
    for room in (path.name for path in Path(glie.__file__).parent.iterdir() if path.is_dir()):
        named += re.findall(rf"(?<=`){room}/[\w/]+\.py\b", text)
    for name in named:
        assert (ROOT / name).exists() or (Path(glie.__file__).parent / name).exists(), name


def test_every_module_has_a_place_in_contributing() -> None:
    """In the row of its room."""
    text, source = (ROOT / "CONTRIBUTING.md").read_text(), Path(glie.__file__).parent
    rooms = text.split("\n## The rooms\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w/.]+?)/?` \| (.*) \|$", rooms, re.MULTILINE))
    for path in source.rglob("*.py"):
        room = path.parent.relative_to(source).as_posix()
        if path.name.startswith("_"):  # compiled loops, and what a room is
            continue
        if room == ".":
            assert path.name in rows
        elif room not in rows:  # a folder in a room, named as one
            assert f"`{path.parent.name}/`" in rows[room.split("/")[0]], path
        elif room != "cli":  # its files are named for their verbs
            assert f"`{path.name}`" in rows[room], path
    for room, said in rows.items():
        for name in re.findall(r"`(\w+\.py)`", said):
            assert (source / room / name).exists(), (room, name)


# `file.py: function`, perhaps several, in a row of CONTRIBUTING; a number says which hop it is
ROW = re.compile(r"^\| (?P<hop>[^|]*) \| (?P<where>[^|]*) \| (?P<what>[^|]*) \|$", re.MULTILINE)
PLACE = re.compile(r"`([\w/]+)\.py: (\w+)(?:\.(\w+))?`(?:, `(\w+)`)?")


def hops(section: str) -> Iterator[tuple[str, str, str, str]]:
    """Hop, module, function or class, and method of all that a section of CONTRIBUTING names."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    for row in ROW.finditer(text):
        for module, name, method, second in PLACE.findall(row["where"] + row["what"]):
            module = "glie." + module.replace("/", ".")
            yield row["hop"].strip(), module, name, method
            if second:
                yield row["hop"].strip(), module, second, ""


def watch(module: str, name: str, method: str, seen: list[str], patch: pytest.MonkeyPatch) -> str:
    """Note calls of a function, or of a method or the making of a class, wherever it is known."""
    label = f"{module}:{name}" + (f".{method}" if method else "")
    found = getattr(importlib.import_module(module), name)
    owner, attribute = (found, method or "__init__") if isinstance(found, type) else (None, "")
    original = getattr(owner, attribute) if owner else found

    def noting(*arguments: Any, **keywords: Any) -> Any:
        seen.append(label)
        return original(*arguments, **keywords)

    if owner:
        patch.setattr(owner, attribute, noting)
        return label
    for known, other in list(sys.modules.items()):
        if known.startswith("glie"):
            for key, value in list(vars(other).items()):
                if value is original:
                    patch.setattr(other, key, noting)
    return label


@pytest.mark.parametrize("section", ["One page, hop by hop", "One query, hop by hop"])
def test_the_hops_are_true(
    section: str,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every function that CONTRIBUTING names is called, the numbered ones in that order."""
    monkeypatch.chdir(tmp_path)
    Path("reports").mkdir()
    Path("reports/a.txt").write_text("Capital expenditure in 2018 was low.")
    commands: list[tuple[str, ...]] = [("index", "reports", "--to", "x.glie")]
    if section.startswith("One query"):
        assert run(*commands.pop()).code == 0
        asked = "search", "x.glie", "capital expenditure"
        commands = [asked, (*asked, "--candidates"), (*asked, "--mode", "late")]
    seen: list[str] = []
    first: list[str] = []  # the numbered hops
    named: list[str] = []
    for hop, module, name, method in hops(section):
        if module.startswith("glie.cli."):  # a verb, which the command line has taken already
            assert callable(getattr(importlib.import_module(module), name))
            continue
        label = watch(module, name, method, seen, monkeypatch)
        named.append(label)
        if hop.isdigit():
            first.append(label)
    for command in commands:
        done = run(*command)
        assert done.code == 0, done.err
    assert len(first) >= 4
    assert set(named) <= set(seen)
    later = iter(seen)
    assert all(label in later for label in first)  # one after the other
