"""The model card of a codec: its encoder, its size, and the scores of its fit."""

from __future__ import annotations

import re
from pathlib import PurePath

from glie.codec.codec import Codec

ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # a name on the Hugging Face Hub


def model_card(codec: Codec, name: str = "author/name") -> str:
    """The card, in Markdown; `name` is that of the repository."""
    parts = [_front(codec), f"# {name.rpartition('/')[2]}: a glie codec", _what(codec)]
    return "\n\n".join([*parts, "## Measured", _measured(codec), "## Use", _use(name)]) + "\n"


def _front(codec: Codec) -> str:
    lines = ["---", "library_name: glie", "tags: [late-interaction, multi-vector, compression]"]
    base = _base(codec)[0]
    if ON_HUB.fullmatch(base):
        lines.append(f"base_model: {base}")
    return "\n".join([*lines, "---"])


def _base(codec: Codec) -> tuple[str, str]:
    """Name of the encoder, and of the matrix that reduces its vectors, if there is one. Local paths
    are cut to the file's name: a card is public."""
    name = codec.encoder.name if codec.encoder else ""
    name, _, matrix = name.rpartition("@") if name.endswith(".safetensors") else (name, "", "")
    return name if ON_HUB.fullmatch(name) else PurePath(name).name, PurePath(matrix).name


def _what(codec: Codec) -> str:
    base, matrix = _base(codec)
    encoder = f"`{base}`" if base else "not named"
    if matrix:
        encoder += f", reduced by `{matrix}`"
    if codec.encoder and codec.encoder.revision:
        encoder += f" (revision `{codec.encoder.revision}`)"
    rows = {"base encoder": encoder, "budget": _budget(codec)}
    if codec.readout.label:
        rows["read-out"] = codec.readout.label
    if codec.dim:
        rows["vectors"] = f"{codec.dim} numbers each"
    if codec.scores:
        rows["fitted on"] = _data(codec)
    said = "Keeps a few vectors of a page's hundreds, for search by late interaction."
    table = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join([said, "", "| | |", "| --- | --- |", *table])


def _budget(codec: Codec) -> str:
    said = f"k = {codec.k} vectors a page in {codec.dtype}"
    if codec.codebook is not None:
        size, most = len(codec.codebook), codec.config.codewords
        said += f", and at most {most} of a codebook's {size:,} codewords"
    if codec.config.bytes_per_page:
        return f"{codec.config.bytes_per_page:,} bytes a page: {said}"
    return said + (f", {_bytes(codec, codec.k):,} bytes" if codec.dim else "")


def _bytes(codec: Codec, k: int) -> int:
    """The bytes of a page's code at k."""
    assert codec.dim is not None
    return codec.at(k).page_bytes(codec.dim)


def _data(codec: Codec) -> str:
    notes = codec.notes
    if "pages" not in notes:
        return "pages that were not noted"
    asked = "questions made of them" if notes.get("pseudo_queries") else "questions"
    cut = ", interrupted" if notes.get("interrupted") else ""
    pages = notes.get("trained_pages", notes["pages"])  # earlier codecs fitted on all pages
    return f"{pages:,} pages and {notes.get('queries', 0):,} {asked}{cut}"


def _measured(codec: Codec) -> str:
    if not codec.scores:
        return (
            "Nothing: it was not fitted to questions. `glie plan` and `glie evaluate` tell what it "
            "keeps of your own pages."
        )
    held = codec.notes.get("held_out")
    lines = [
        f"nDCG@5 on the {held:,} questions held out of the fit."
        if held
        else "nDCG@5 on the questions held out of the fit.",
        "",
        "| k | bytes a page | free | single stage | cascade |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {b.k} | {_bytes(codec, b.k):,} | {b.free:.3f} | {b.single_stage:.3f} "
        f"| {b.cascade:.3f} |"
        for b in codec.scores
    ]
    return "\n".join(
        [
            *lines,
            "",
            "Free is normalised k-means, single stage the fitted code, cascade that code with a "
            "shortlist of which all vectors are regenerated. A codec uses what won at its k.",
        ]
    )


def _use(name: str) -> str:
    return "\n".join(
        [
            "```python",
            "import glie",
            "",
            f'codec = glie.Codec.from_pretrained("{name}")',
            'index = glie.Index.create("my.glie", codec)',
            "index.add(glie.Pages(arrays, ids=ids))  # vectors of the base encoder",
            "```",
        ]
    )
