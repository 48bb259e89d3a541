"""Run the steps of the Dockerfile without Docker, and what the image would run.

python tools/try_image.py        (make image)

The first stage runs in a temporary folder in which the image's folders lie: /opt/glie, /src, ...
The second stage is only copies. Then the image's own user indexes and
serves documents: of the whole file system, only /data, /cache and /tmp can be written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from dockerfile import Instruction, stages_of

ROOT = Path(__file__).parent.parent
FOLDERS = re.compile(r"(?<![\w.:/-])/(opt/glie|src|warm(?:\.glie)?|cache|data)\b")
PORT = 8000
SECRET = "a-secret-for-this-trial"


class Image:
    """The folders of an image, under a folder of this machine."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.arguments: dict[str, str] = {}
        self.folder = Path("/")
        self.user = ""
        self.python = sys.executable

    def inside(self, text: str) -> str:
        """A text of the Dockerfile with the folders where they lie."""
        return FOLDERS.sub(lambda match: f"{self.place}/{match[1]}", text)

    def step(self, instruction: Instruction) -> None:
        """Do what an instruction says."""
        name = instruction.name
        if name == "ARG":
            self.arguments |= instruction.settings
        elif name == "ENV":
            for key, value in instruction.settings.items():
                value = value.replace("$PATH", self.environment["PATH"])
                self.environment[key] = self.inside(value)
        elif name == "WORKDIR":
            self.folder = Path(self.inside(instruction.text))
            self.folder.mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            self.user = instruction.text
        elif name == "COPY" and "from" not in instruction.flags:
            self._copy(instruction.operands)
        elif name == "RUN":
            self._run(instruction.text)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        to = Path(self.inside(target)) if target.startswith("/") else self.folder / target
        for source in map(ROOT.joinpath, sources):
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
                shutil.copytree(source, to, dirs_exist_ok=True, ignore=skipped)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to)

    def _run(self, text: str) -> None:
        script = self.inside(text).replace("python -m venv", f"{self.python} -m venv")
        # where packages come from is this machine's business, as it is the engine's
        outside = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        variables = outside | self.environment | self.arguments | {"HOME": str(self.place)}
        done = subprocess.run(
            ["/bin/sh", "-ec", script],
            cwd=self.folder, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"RUN {text[:60]}...\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    @property
    def _identity(self) -> dict[str, Any]:
        """Who runs the commands: the image's user, if we may become it."""
        if os.geteuid() != 0:
            return {}
        number, group = map(int, self.user.split(":"))
        return {"user": number, "group": group, "extra_groups": []}

    def choose_python(self) -> None:
        """One that the image's user may run: ours may lie in somebody's home."""
        wanted = "import sys, venv, ensurepip; assert sys.version_info >= (3, 11)"
        for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            try:
                subprocess.run([name, "-c", wanted], check=True, cwd="/", **self._identity)
            except (OSError, subprocess.CalledProcessError):
                continue
            self.python = name
            return
        raise SystemExit(f"no Python 3.11 or newer that user {self.user} may run")

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command as the image's user, in its working folder."""
        return subprocess.Popen(
            [self.inside(word) for word in words],
            cwd=self.folder,
            env=self.environment | {"TMPDIR": f"{self.place}/tmp"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._identity,
        )

    def run(self, *words: str, **variables: str) -> str:
        """Run a command to its end; it must succeed."""
        started = self.start(*words, **variables)
        said, _ = started.communicate(timeout=300)
        if started.returncode:
            raise SystemExit(f"{' '.join(words)}: exit code {started.returncode}\n{said}")
        return said

    def close(self) -> None:
        """Take the right to write from everything that the image's user must not write."""
        writable = [self.place / name for name in ("data", "cache", "tmp")]
        for folder in writable:
            folder.mkdir(exist_ok=True)
            if self._identity:
                for path in [folder, *folder.rglob("*")]:
                    os.chown(path, self._identity["user"], self._identity["group"])
        subprocess.run(["chmod", "-R", "a-w", self.place / "opt"], check=True)


def try_image(image: Image) -> None:
    """Index, serve, be healthy, answer, stop; and write nowhere else."""
    build, final = stages_of((ROOT / "Dockerfile").read_text())
    image.user = next(one.text for one in final if one.name == "USER")
    image.choose_python()
    started = time.monotonic()
    for instruction in build:
        image.step(instruction)
    built, image.environment = time.monotonic() - started, {"LANG": "C.UTF-8", "PATH": "/bin"}
    for instruction in final:
        if instruction.name != "RUN":  # it makes the user, who is only a number here
            image.step(instruction)
    image.close()
    image.folder.mkdir(exist_ok=True)
    said = {one.name: one for one in final}
    documents = Path(image.inside("/warm"))
    ready = image.run("glie", "index", str(documents), "--to", "/data/index.glie")
    compiled = len(list(Path(image.inside("/cache")).rglob("*.nbc")))
    if not compiled or "index holds" not in ready:
        raise SystemExit(f"nothing compiled was kept, or nothing indexed:\n{ready}")
    words = [*said["ENTRYPOINT"].words, *said["CMD"].words]
    refused = image.start(*words)  # it listens for all, so it wants a secret
    if refused.wait(60) == 0:
        raise SystemExit("the server starts without a token")
    server = image.start(*words, GLIE_TOKEN=SECRET)
    try:
        check = said["HEALTHCHECK"].text.split("CMD ", 1)[1]
        _until_healthy(image, server, json.loads(check))
        asked = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/search",
            json.dumps({"query": "bytes of a page", "top": 1}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"},
        )
        found = json.load(urllib.request.urlopen(asked, timeout=60))
        if not found["hits"]:
            raise SystemExit(f"no answer: {found}")
    finally:
        server.terminate()
    if server.wait(30) not in (0, -15):
        raise SystemExit(f"the server stopped with {server.returncode}")
    size = sum(p.lstat().st_size for p in Path(image.inside("/opt/glie")).rglob("*"))
    print(
        f"the image's steps work: {size / 1e6:.0f} MB beside Python, built in {built:.0f} s, "
        f"{compiled} compiled loops kept; best page {found['hits'][0]['id']}"
    )


def _until_healthy(image: Image, server: subprocess.Popen[str], check: list[str]) -> None:
    for _ in range(60):
        if server.poll() is not None:
            raise SystemExit(f"the server stopped: {server.stdout and server.stdout.read()}")
        if image.start(*check).wait(30) == 0:
            return
        time.sleep(0.5)
    raise SystemExit("the server does not become healthy")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="glie-image-") as folder:
        Path(folder).chmod(0o755)
        place = Path(folder)
        (place / "tmp").mkdir()
        try:
            try_image(Image(place))
        finally:
            subprocess.run(["chmod", "-R", "u+w", folder], check=False)


if __name__ == "__main__":
    main()
