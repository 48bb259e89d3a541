"""Read a Dockerfile, as far as glie's own needs it: instructions, and the stages they are in."""

from __future__ import annotations

import json
import re
from typing import NamedTuple


class Instruction(NamedTuple):
    """RUN, COPY, ...; and what follows, with continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the JSON form, or of the plain one."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        return self.text.split()

    @property
    def flags(self) -> dict[str, str]:
        """Such as --from=build."""
        return dict(re.findall(r"--([a-z-]+)=(\S+)", self.text))

    @property
    def operands(self) -> list[str]:
        """The words without flags."""
        return [word for word in self.words if not word.startswith("--")]

    @property
    def settings(self) -> dict[str, str]:
        """NAME=VALUE of ENV and ARG."""
        return dict(word.split("=", 1) for word in self.words if "=" in word)


def stages_of(text: str) -> list[list[Instruction]]:
    """The stages of a Dockerfile; each begins with its FROM."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    stages: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append(Instruction(name, rest.strip()))
    return stages
