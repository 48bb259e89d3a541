"""tools/train_encoder.py: it learns, it goes on where it was stopped, and its parts do as they say."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file

TOOLS = Path(__file__).parents[2] / "tools"
SUBJECTS = ["harbour", "turbine", "library", "invoice", "railway", "orchard", "glacier", "museum"]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    train_encoder = importlib.import_module("train_encoder")
    monkeypatch.setattr(train_encoder, "BATCH", 4)
    monkeypatch.setattr(train_encoder, "SAVE_EVERY", 2)
    monkeypatch.setattr(train_encoder, "RATE", 1e-3)
    return train_encoder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Forty questions about eight subjects; passages have numbers and names."""
    rng = random.Random(0)
    folder = tmp_path / "pairs"
    folder.mkdir()
    with gzip.open(folder / "made.jsonl.gz", "wt", encoding="utf-8") as file:
        for i in range(40):
            subject = SUBJECTS[i % len(SUBJECTS)]
            text = f"The {subject} of Port Ellen number {i} cost {rng.randint(1000, 9999)} pounds."
            line = {"query": f"what did {subject} {i} cost", "text": text, "source": "made"}
            file.write(json.dumps(line) + "\n")
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A BERT with random weights and a tokenizer of letters, as transformers saves them."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 101, "[SEP]": 102}
    for word in [*letters, *(f"##{letter}" for letter in letters)]:
        at = len(vocabulary)
        vocabulary[word] = at if at not in (101, 102) else at + 200
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    folder = tmp_path / "tiny"
    config = BertConfig(
        vocab_size=400,
        hidden_size=144,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def train(
    tool: ModuleType, pairs: Path, start: Path, to: Path, steps: int, *more: str, stop: int = 0
) -> None:
    """Run the command; with `stop`, end it after so many steps, as if it were killed."""
    argv = ["train_encoder.py", str(pairs), "--start", str(start), "--to", str(to)]
    argv += ["--steps", str(steps), "--threads", "1", *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        if stop:
            whole = tool.batches
            patch.setattr(tool, "batches", lambda *given: list(whole(*given))[:stop])
        tool.main()


def test_it_goes_on_where_it_was_stopped(
    tool: ModuleType, pairs: Path, tiny: Path, tmp_path: Path
) -> None:
    train(tool, pairs, tiny, tmp_path / "one", 6)
    train(tool, pairs, tiny, tmp_path / "two", 6, stop=4)
    train(tool, pairs, tiny, tmp_path / "two", 6)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    start = load_file(tiny / "model.safetensors")
    assert one.keys() == two.keys()
    for name, weights in one.items():
        np.testing.assert_allclose(two[name], weights, rtol=1e-4, atol=1e-6, err_msg=name)
    frozen, moved = "encoder.layer.2.output.dense.weight", "encoder.layer.3.output.dense.weight"
    np.testing.assert_array_equal(one[frozen], start[frozen])
    assert np.abs(one[moved] - start[moved]).max() > 1e-4
    assert one["head.weight"].shape == (128, 144)


def test_a_second_run_starts_where_the_first_ended(
    tool: ModuleType, pairs: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one, two = (tmp_path / name for name in ("first", "one", "two"))
    train(tool, pairs, tiny, first, 2)
    monkeypatch.setattr(tool, "CODEWORDS", 16)
    monkeypatch.setattr(tool, "REFIT_EVERY", 2)
    train(tool, pairs, first, one, 4, "--coded", "0.5")
    train(tool, pairs, first, two, 4, "--coded", "0.5", stop=2)
    train(tool, pairs, first, two, 4, "--coded", "0.5")
    weights = [load_file(folder / "model.safetensors") for folder in (first, one, two)]
    for name, last in weights[1].items():
        np.testing.assert_allclose(weights[2][name], last, rtol=1e-4, atol=1e-6, err_msg=name)
    head = [found["head.weight"] for found in weights]
    assert 1e-5 < np.abs(head[1] - head[0]).max() < 0.1  # moved, from where it was
    assert not (one / "head.safetensors").exists()
    logged = [json.loads(line) for line in (one / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged if "reciprocal_rank" in line] == [0, 4]


def test_vectors_as_they_are_stored(tool: ModuleType) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    kinds = torch.randn(12, 16, generator=generator)
    pages = [
        torch.nn.functional.normalize(kinds[torch.randperm(12, generator=generator)[:8]], dim=-1)
        for _ in range(40)
    ]
    cosines = []
    for codewords in (1, 16, 256):
        code = tool.Code(codewords)
        code.fit(pages, generator)
        stored = [code.coded(page) for page in pages]
        lengths = torch.cat(stored).norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        cosines.append(float((torch.cat(pages) * torch.cat(stored)).sum(1).mean()))
    assert cosines[0] < cosines[1] < cosines[2]
    assert cosines[2] > 0.95
    # gradients pass as if nothing had been rounded
    page = pages[0].clone().requires_grad_()
    code.coded(page)[0, 0].backward()
    expected = torch.zeros_like(page)
    expected[0, 0] = 1
    torch.testing.assert_close(page.grad, expected)


def test_what_is_asked_of_a_page(tool: ModuleType) -> None:
    window = "Capital expenditure was 1,577 million in 2018, said Inge Thulin."
    found = {tool.exact(window, random.Random(i)) for i in range(60)}
    questions = {question for question, _ in found}
    assert {"1,577", "2018", "Inge Thulin"} <= questions
    for question, changed in found:
        if changed is None:
            assert question in window
        else:  # another number, in a page of the same length
            assert len(changed) == len(window)
            assert 1 <= sum(a != b for a, b in zip(changed, window, strict=True)) <= 2
    assert tool.exact("no figure and no name", random.Random(0)) is None


def test_a_quarter_of_the_vectors(tool: ModuleType) -> None:
    import torch

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 16))
    page = centres[np.arange(24) % 3] + 0.01 * rng.normal(size=(24, 16))
    page /= np.linalg.norm(page, axis=1, keepdims=True)
    few = tool.fewer(torch.from_numpy(page).float()).numpy()
    assert len(few) <= 6
    np.testing.assert_allclose(np.linalg.norm(few, axis=1), 1, rtol=1e-5)
    assert (page @ few.T).max(axis=1).min() > 0.99


def test_bm25_counts_rare_words_and_no_question_words(tool: ModuleType) -> None:
    texts = ["the turbines of the harbour", "how the library opens", "an invoice of the railway"]
    ranker = tool.BM25(texts, ["how does a turbine work", "how do libraries open", "how much"])
    scores = (ranker.asked(["how turbine"]) @ ranker.weights.T).toarray()[0]
    assert scores.argmax() == 0
    assert ranker.rarity("how") < ranker.rarity("invoices")


def test_bm25_without_questions(tool: ModuleType) -> None:
    texts = ["how the turbine turns", "how the library opens", "an invoice"]
    plain = tool.BM25(texts, None)
    assert plain.rarity("how") == plain.rarity("the") < plain.rarity("library")
    assert plain.rarity("how") > tool.BM25(texts, ["how much"] * 9).rarity("how")


def test_an_empty_folder(tool: ModuleType, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no \*\.jsonl\.gz"):
        train(tool, tmp_path, tiny, tmp_path / "x", 1)


def test_no_model_to_start_from(tool: ModuleType, pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--start: no model\.safetensors in"):
        train(tool, pairs, tmp_path, tmp_path / "x", 1)
    assert not (tmp_path / "x").exists()


def test_words_of_any_language(tool: ModuleType) -> None:
    found = tool.any_words("Die GRÖSSE von 東京タワー, हिन्दी भाषा! ไทย 강정호 山a1")
    assert found == [
        *("die", "grösse", "von", "東京", "京タ", "タワ", "ワー", "हिन्दी", "भाषा", "ไท", "ทย"),
        *("강정", "정호", "山", "a1"),
    ]
    ranker = tool.BM25(
        ["東京タワーの高さ", "大阪の橋"], ["高さは", "橋は"], words_of=tool.any_words
    )
    scores = (ranker.asked(["タワーの高さ"]) @ ranker.weights.T).toarray()[0]
    assert scores[0] > 0 == scores[1]
    assert ranker.rarity("京都") == ranker.idf.max()


def test_some_of_the_pairs(tool: ModuleType, pairs: Path) -> None:
    (pairs / "other.jsonl.gz").write_bytes((pairs / "made.jsonl.gz").read_bytes())
    assert len(tool.read_pairs(pairs)) == 80
    assert len(tool.read_pairs(pairs, 7)) == 14
    assert len(tool.read_pairs(pairs, 7, ["oth"])) == 7


def test_several_folders(tool: ModuleType, pairs: Path, tiny: Path, tmp_path: Path) -> None:
    argv = ["train_encoder.py", str(pairs), str(pairs), "--most", "30", "10", "--words", "any"]
    argv += ["--start", str(tiny), "--frozen", "2", "--batch", "3", "--steps", "1"]
    argv += ["--threads", "1", "--to", str(tmp_path / "x")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        tool.main()
    made, start = (load_file(f / "model.safetensors") for f in (tmp_path / "x", tiny))
    for layer, moved in ((1, False), (2, True)):
        name = f"encoder.layer.{layer}.output.dense.weight"
        assert np.array_equal(made[name], start[name]) != moved


def test_the_table_of_encoders(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = importlib.import_module("encoder_table")
    folder = tmp_path / "made"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": s, "text": f"all about the {s}"}) for s in SUBJECTS]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"_id": s, "text": f"what is a {s}"}) for s in SUBJECTS[:3]]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [f"{s}\t{s}\t1" for s in SUBJECTS[:3]]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    monkeypatch.setattr(sys, "argv", ["encoder_table.py", str(folder)])
    table.main()
    shown = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in shown] == [
        "| BM25",
        "| BM25, stop words, k1 0.9, b 0.4",
        "| english",
        "| english, equal weights",
    ]
    assert {row[1] for row in shown} == {"1.000"}


def test_equal_weights(tool: ModuleType) -> None:
    from glie.pages import Queries

    table = importlib.import_module("encoder_table")
    u = np.array([[0.6, 0.8], [0.8, -0.6]], np.float32)
    w = np.array([[0.5], [0.9]], np.float32)
    weighted = Queries([np.concatenate([u * w, np.sqrt(1 - w**2)], axis=1)])
    plain = table.equal_weights(weighted)
    np.testing.assert_allclose(plain.vectors, [[0.6, 0.8, 0], [0.8, -0.6, 0]], atol=1e-6)
    assert table.equal_weights(Queries([np.eye(3, dtype=np.float32)])) is None
