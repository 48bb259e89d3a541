"""What the documentation site needs beside docs/ (a hook of mkdocs, named in mkdocs.yml): the two
pages of the project's root, links that lead to the site's own pages, and examples in docstrings."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# pages of the root, and their names on the site
BESIDES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
EXAMPLE = re.compile(r"^(?P<indent> *)>>> ")
LINK = re.compile(r"(\]\(|src=\")([^)\s\"#]+)(#[^)\s\"]*)?([)\"])")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    from mkdocs.structure.files import File

    for name, target in BESIDES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / name)))
    return files


def on_config(config: Any) -> Any:
    """Examples in docstrings are code."""
    from markdown import Extension
    from markdown.preprocessors import Preprocessor

    class Examples(Preprocessor):  # type: ignore[misc]
        def run(self, lines: list[str]) -> list[str]:
            return fenced(lines)

    class Adding(Extension):  # type: ignore[misc]
        def extendMarkdown(self, md: Any) -> None:  # noqa: N802
            md.preprocessors.register(Examples(md), "examples", 200)  # before fences are read

    config.markdown_extensions.append(Adding())
    return config


def fenced(lines: list[str]) -> list[str]:
    """Fences around examples of the interactive prompt, which end at an empty line.

    >>> fenced(["Adds.", "", ">>> 1 + 1", "2", "", "So."])
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'So.']
    """
    made: list[str] = []
    inside, code = False, False  # in an example; in a fence of the page's own
    for line in lines:
        code ^= line.lstrip().startswith("```")
        if not inside and not code and EXAMPLE.match(line):
            inside = True
            made.append("```pycon")
        elif inside and not line.strip():
            inside = False
            made.append("```")
        made.append(line)
    return [*made, "```"] if inside else made


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are in the repository, turned to the site's pages."""
    return linked(markdown, "" if page.file.src_uri in BESIDES.values() else "docs")


def linked(markdown: str, folder: str) -> str:
    """The text of a page in `folder`, its links relative to docs/. Those to files that are not on
    the site become plain text.

    >>> linked("[a](docs/a.md#b) [c](CHANGELOG.md) [d](Makefile)", "")
    '[a](a.md#b) [c](CHANGELOG.md) d'
    >>> linked("[a](a.md) [c](../CHANGELOG.md) [e](https://e.org)", "docs")
    '[a](a.md) [c](CHANGELOG.md) [e](https://e.org)'
    """

    def turned(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        path = BESIDES.get(path, path.removeprefix("docs/"))
        return f"{before}{path}{anchor or ''}{after}"

    def known(match: re.Match[str]) -> bool:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return path.startswith("docs/") or path in BESIDES or ":" in match[2]

    plain = re.sub(
        r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)",
        lambda match: match[0] if known(match) else match[1],
        markdown,
    )
    return LINK.sub(turned, plain)
