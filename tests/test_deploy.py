"""The files that run glie elsewhere: what can be known of them without Docker, systemd or GitHub.
`make image` runs the Dockerfile's steps; `make lint-deploy` lints all of them."""

from __future__ import annotations

import configparser
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main
import yaml
from tools.dockerfile import Instruction, stages_of
from tools.try_image import Image

import glie
from glie.cli.app import app

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
BUILD, FINAL = stages_of((ROOT / "Dockerfile").read_text())


def the(name: str) -> Instruction:
    """The instruction of that name in the final stage; the only one."""
    (found,) = [one for one in FINAL if one.name == name]
    return found


def test_a_dockerfile_is_read() -> None:
    text = '# a\nARGX\nFROM a AS b\n# c\nRUN x \\\n    # d\n    && y\nFROM e\nCMD ["f", "g h"]\n'
    first, second = stages_of(text.replace("ARGX\n", ""))
    assert first == [Instruction("FROM", "a AS b"), Instruction("RUN", "x && y")]
    assert second[1].words == ["f", "g h"]
    copied = Instruction("COPY", "--from=build --chown=1:1 /a /b")
    assert (copied.flags, copied.operands) == ({"from": "build", "chown": "1:1"}, ["/a", "/b"])


def test_the_image() -> None:
    """It runs as nobody in particular, writes to volumes alone, and says how it is."""
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", the("USER").text)
    assert FINAL.index(the("USER")) < FINAL.index(the("ENTRYPOINT"))
    assert set(the("VOLUME").words) == {"/data", "/cache"}
    environment = the("ENV").settings
    assert environment["NUMBA_CACHE_DIR"] == "/cache"
    assert environment["HOME"] == the("WORKDIR").text == "/data"
    assert "/health" in the("HEALTHCHECK").text
    assert not [one for one in BUILD + FINAL if one.name == "ADD"]
    for stage in (BUILD, FINAL):
        assert re.fullmatch(r"python:3\.\d+-slim-\w+( AS build)?", stage[0].text)
    assert BUILD[0].text.startswith(FINAL[0].text)  # compiled code is for one Python


def test_what_is_copied_exists_and_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for one in BUILD:
        if one.name == "COPY":
            for source in one.operands[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


def test_extras_of_the_image_exist() -> None:
    (extras,) = [one.settings["EXTRAS"] for one in BUILD if one.name == "ARG"]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


def test_folders_of_the_image_are_found(tmp_path: Path) -> None:
    image = Image(tmp_path)
    text = "/opt/glie/bin/glie index /warm --to /warm.glie; cd /src; echo /etc/data a/data"
    inside = image.inside(text)
    assert inside.replace(str(tmp_path), "ROOT") == (
        "ROOT/opt/glie/bin/glie index ROOT/warm --to ROOT/warm.glie; cd ROOT/src; "
        "echo /etc/data a/data"
    )


def commands() -> list[tuple[str, list[str]]]:
    """Every `glie` command in these files."""
    found = [("Dockerfile", ["glie", *the("CMD").words])]
    for path in [*DEPLOY.iterdir(), ROOT / "docs/install.md"]:
        for line in re.sub(r"\\\n#?\s*", "", path.read_text()).splitlines():
            match = re.search(r"(?:^|[\s/])(glie (?:index|serve|export|search|add) .*)", line)
            if match and not line.startswith("|"):
                found.append((path.name, shlex.split(match[1])))
    return found


@pytest.mark.parametrize(("place", "words"), commands(), ids=lambda one: str(one)[:60])
def test_commands_are_those_of_the_command_line(place: str, words: list[str]) -> None:
    group = typer.main.get_command(app)
    verb = cast(Any, group).commands[words[1]]
    options = {name for one in verb.params for name in [*one.opts, *one.secondary_opts]}
    assert {word for word in words if word.startswith("--")} <= options
    for option, name in itertools.pairwise(words):
        if option in ("--to", "--engine") and words[1] in ("export", "search"):
            assert name in glie.engines.ENGINES


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files(path: Path) -> None:
    """No secret in them, no port for all, images of a version; glie cannot write to its image."""
    made = yaml.safe_load(path.read_text())
    for name, service in made["services"].items():
        for value in service.get("environment", {}).values():
            assert re.match(r"\$\{\w+:\?|\w+:\/\/glie:\$\{", str(value)), value
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
        assert name == "glie" or re.search(r":v?\d+", service["image"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source.startswith(("$", ".", "/")) or source in made["volumes"]
    if path.name == "compose.yaml":
        assert made["services"]["glie"]["read_only"] is True


def test_the_unit() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "glie.service")
    service = unit["Service"]
    assert service["User"] == "glie"
    assert "GLIE_TOKEN" not in service.get("Environment", "")
    assert service["ProtectSystem"] == "strict"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows(path: Path) -> None:
    """Actions are pinned by commit, jobs end, and make targets and files exist."""
    text = path.read_text()
    made = yaml.safe_load(text)
    for job in made["jobs"].values():
        assert job["timeout-minutes"] <= 60
    for used in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"run: make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    for name in re.findall(r"\b(?:tests|tools)/[\w/.]+", text):
        assert (ROOT / name).exists()


def test_the_version_is_found_as_the_release_does() -> None:
    """The command that compares the tag with the version."""
    made = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (step,) = [
        one for one in made["jobs"]["build"]["steps"] if one.get("name", "").startswith("The")
    ]
    script = step["run"].replace("python ", f"{sys.executable} ")
    for tag, code in ((f"v{glie.__version__}", 0), ("v0.0.0", 1)):
        done = subprocess.run(
            ["/bin/sh", "-c", script], cwd=ROOT, env={"GITHUB_REF_NAME": tag}, check=False
        )
        assert done.returncode == code
