"""The fine-tuned rival, end to end on tiny random models of the real architectures."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import safetensors.torch
import torch
import transformers
from PIL import Image, ImageDraw

import glie
from glie.evaluation import encode, load
from glie.evaluation.baselines import merge_labels
from glie.evaluation.datasets import Picture
from glie.evaluation.light_colpali import (
    FineTuning,
    LightColPali,
    Pair,
    TuneProgress,
    _loss,
    _with_lora,
    fine_tune,
    image_pairs,
    merged_vectors,
)
from glie.kernels.maxsim import maxsim
from tests.cli.conftest import Run, run  # noqa: F401
from tests.encoders.checkpoints import RETRIEVAL, saved
from tests.evaluation.sets import TextWords, write_set

K = 3
WORDS = ["red", "blue", "green", "black", "white", "pink"]
FAST = FineTuning(rank=4, alpha=8, steps=12, batch=6, accumulation=1, learning_rate=0.02)


@pytest.fixture(scope="module", params=RETRIEVAL)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a real model has it: weights, configuration, and the files of its processor."""
    return saved(request.param, tmp_path_factory.mktemp(request.param) / "model")


@pytest.fixture(scope="module")
def colpali(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("colpali", tmp_path_factory.mktemp("one") / "model")


def image_set(place: Path) -> Path:
    """Six pictures, wide and tall, and a question about each."""
    place.mkdir()
    for i, word in enumerate(WORDS):
        picture = Image.new("RGB", (84 + 28 * (i % 2), 84), word)
        ImageDraw.Draw(picture).rectangle((8 * i, 8, 8 * i + 30, 50), fill=WORDS[i - 1])
        picture.save(place / f"{word}.png")
    return write_set(
        place,
        [{"_id": f"p{i}", "image": f"{word}.png"} for i, word in enumerate(WORDS)],
        [{"_id": f"q{i}", "text": f"what is {word}?"} for i, word in enumerate(WORDS)],
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\tp{i}\t1\n" for i in range(len(WORDS))),
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_set(tmp_path_factory.mktemp("sets") / "pictures")


@pytest.fixture
def pairs(pictures: Path) -> list[Pair]:
    return image_pairs(load(pictures))[0]


def scores_of(encoder: LightColPali, pairs: list[Pair]) -> torch.Tensor:
    with torch.inference_mode():
        return encoder.scores([p.question for p in pairs], [p.image for p in pairs], K)


def weights_of(encoder: LightColPali) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = peft.get_peft_model_state_dict(encoder.model)
    return found


def test_pairs_of_a_set(pictures: Path) -> None:
    pairs, warnings = image_pairs(load(pictures))
    assert (len(pairs), warnings) == (6, [])
    assert (pairs[1].question, pairs[1].image.name) == ("what is blue?", "blue.png")


def test_pages_without_an_image_are_left_out_and_named(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"not a picture")
    pages = [{"_id": "p0", "image": "good.png"}, {"_id": "p1", "image": "bad.png"}, {"_id": "p2", "text": "a"}]  # fmt: skip
    question = [{"_id": "q0", "text": "what?"}]
    mixed = write_set(tmp_path, pages, question, "h\nq0\tp0\t1\nq0\tp1\t1\nq0\tp2\t2\n")
    pairs, warnings = image_pairs(load(mixed))
    assert [(pair.question, pair.image.name) for pair in pairs] == [("what?", "good.png")]
    assert warnings == ["2 pages without an image that can be read left out: p1, p2"]
    blind = write_set(tmp_path, pages, question, "h\nq0\tp2\t1\n")
    with pytest.raises(glie.DatasetError, match="no question that an image answers; 1 page"):
        image_pairs(load(blind))
    vectors = encode(load(blind), TextWords())
    with pytest.raises(glie.DatasetError, match="cached vectors have no images"):
        image_pairs(vectors)


def test_scores_are_the_definition(folder: Path, pairs: list[Pair]) -> None:
    """Vectors as the mask says, clusters, means, back on the sphere, MaxSim: in plain loops."""
    encoder = LightColPali(folder)
    questions, images = [p.question for p in pairs], [p.image for p in pairs]
    queries, pages = encoder.encode_queries(questions), encoder.encode_pages(images)
    for rows in (*queries, *pages):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    expected = np.empty((6, 6))
    for p, rows in enumerate(pages):
        labels = merge_labels(rows, K)
        means = [rows[labels == slot].mean(axis=0) for slot in range(K)]
        code = np.stack([mean / np.linalg.norm(mean) for mean in means])
        for q, tokens in enumerate(queries):
            expected[q, p] = (tokens @ code.T).max(axis=1).sum()
    np.testing.assert_allclose(scores_of(encoder, pairs).numpy(), expected, rtol=1e-5)


def test_codes_score_like_the_merge(folder: Path, pairs: list[Pair]) -> None:
    """What the evaluation stores and searches is what the fine-tuning saw."""
    encoder = LightColPali(folder)
    codes = encoder.codes([p.image for p in pairs], ["a", "b", "c", "d", "e", "f"], K)
    assert codes.counts.min() > 0
    queries = glie.Queries(encoder.encode_queries([p.question for p in pairs]))
    rows = np.arange(6) * K
    found = maxsim(
        queries.vectors, queries.offsets, codes.vectors.reshape(-1, codes.dim), rows, rows + K
    )
    np.testing.assert_allclose(found, scores_of(encoder, pairs).numpy(), rtol=1e-5)


def test_the_untrained_merge_scores_exactly_as_the_frozen_model(
    folder: Path, pairs: list[Pair]
) -> None:
    frozen = scores_of(LightColPali(folder), pairs)
    encoder = LightColPali(folder)
    encoder.model = _with_lora(encoder.model, FineTuning()).eval()
    assert torch.equal(scores_of(encoder, pairs), frozen)  # bit for bit
    # it could have differed: the adapter is in the way of every score
    for name, weight in encoder.model.named_parameters():
        if "lora_B" in name:
            weight.data += 0.01
    assert (scores_of(encoder, pairs) != frozen).all()


def test_models_in_half_precision(folder: Path, pairs: list[Pair], tmp_path: Path) -> None:
    """As the published ones are."""
    half = shutil.copytree(folder, tmp_path / "half")
    LightColPali(folder).model.bfloat16().save_pretrained(half)
    encoder = LightColPali(half)
    assert encoder.model.dtype == torch.bfloat16
    frozen = scores_of(encoder, pairs)
    encoder.model = _with_lora(encoder.model, FineTuning()).eval()
    assert torch.equal(scores_of(encoder, pairs), frozen)
    assert encoder.codes([pairs[0].image], ["a"], K).vectors.dtype == np.float32
    tuned = LightColPali(half)
    fine_tune(tuned, pairs, K, FAST)
    assert not torch.equal(scores_of(tuned, pairs), frozen)


def test_a_few_steps_lower_the_loss(folder: Path, pairs: list[Pair]) -> None:
    encoder = LightColPali(folder)
    before_scores = scores_of(encoder, pairs)
    with torch.inference_mode():
        before = float(_loss(encoder, pairs, set(pairs), K))
    seen: list[TuneProgress] = []
    losses = fine_tune(encoder, pairs, K, FAST, progress=seen.append)
    with torch.inference_mode():
        after = float(_loss(encoder, pairs, set(pairs), K))
    assert after < 0.7 * before
    assert [step.done for step in seen] == list(range(1, 13))
    assert [step.loss for step in seen] == losses
    assert encoder.k == K
    assert encoder.notes["steps"] == 12
    assert not encoder.notes["interrupted"]
    assert not encoder.model.training
    with encoder.model.disable_adapter():  # what was there before did not move
        assert torch.equal(scores_of(encoder, pairs), before_scores)
    with pytest.raises(glie.InputError, match="fine-tuned already"):
        fine_tune(encoder, pairs, K, FAST)


def test_saved_and_loaded(folder: Path, pairs: list[Pair], tmp_path: Path) -> None:
    encoder = LightColPali(folder)
    fine_tune(encoder, pairs, K, FAST)
    encoder.save(tmp_path / "adapter")
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert names == {
        *("README.md", "adapter_config.json", "adapter_model.safetensors", "light-colpali.json")
    }
    again = LightColPali(folder, tmp_path / "adapter")
    assert torch.equal(scores_of(again, pairs), scores_of(encoder, pairs))
    assert (again.k, again.notes["settings"]["rank"]) == (K, 4)
    images = [p.image for p in pairs]
    for mine, theirs in zip(again.encode_pages(images), encoder.encode_pages(images), strict=True):
        assert (mine == theirs).all()
    assert again.codes(images, list("abcdef")).k == K
    encoder.save(tmp_path / "adapter")  # over what it wrote before


def test_a_save_that_is_killed_at_any_moment(
    colpali: Path, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves what was there before, or nothing that could be taken for an adapter, and nothing
    in the way of the next save."""

    class Killed(BaseException):
        pass

    encoder, other = LightColPali(colpali), LightColPali(colpali)
    for one, k in ((encoder, K), (other, K - 1)):
        fine_tune(one, pairs, k, FineTuning(rank=2, steps=1, batch=3, accumulation=1))
    place = tmp_path / "adapter"
    replace, write = Path.replace, peft.PeftModel.save_pretrained

    def mortal(path: Path, target: Path, left: Iterator[int]) -> Path:
        if next(left, None) is None:
            raise Killed
        return replace(path, target)

    def writes(model: Any, folder: Path, left: Iterator[int], **how: Any) -> None:
        write(model, folder, **how)
        if next(left, None) is None:
            Path(folder, "adapter_model.safetensors").write_bytes(b"half")
            raise Killed

    for moment in range(6):  # while peft writes, and before each of the five renames
        for before in (False, True):
            shutil.rmtree(place, ignore_errors=True)
            if before:
                other.save(place)
            with monkeypatch.context() as life:
                left = iter(range(moment))
                for kind, name, act in (
                    (Path, "replace", mortal),
                    (peft.PeftModel, "save_pretrained", writes),
                ):
                    life.setattr(kind, name, functools.partialmethod(act, left=left))
                with pytest.raises(Killed):
                    encoder.save(place)
            if before and moment < 2:
                assert LightColPali(colpali, place).k == K - 1
            else:
                with pytest.raises(glie.EncoderError, match="not an adapter"):
                    LightColPali(colpali, place)
            encoder.save(place)
            assert LightColPali(colpali, place).k == K
            assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


def test_the_same_seed_gives_the_same_weights(colpali: Path, pairs: list[Pair]) -> None:
    short = FineTuning(rank=2, steps=2, batch=3, accumulation=2)
    state = torch.get_rng_state()
    made = []
    for seed in (0, 0, 1):
        encoder = LightColPali(colpali)
        fine_tune(encoder, pairs, K, short, seed=seed)
        made.append(weights_of(encoder))
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert any(not torch.equal(made[0][name], made[2][name]) for name in made[0])
    assert torch.equal(torch.get_rng_state(), state)  # the caller's draws are its own


def test_an_interrupted_fine_tuning_keeps_what_it_learned(
    colpali: Path, pairs: list[Pair], tmp_path: Path
) -> None:
    def stop(step: TuneProgress) -> None:
        if step.done == 2:
            raise KeyboardInterrupt

    encoder = LightColPali(colpali)
    losses = fine_tune(encoder, pairs, K, FAST, progress=stop)
    assert len(losses) == 2
    assert encoder.notes["interrupted"]
    assert any(weight.any() for name, weight in weights_of(encoder).items() if "lora_B" in name)
    encoder.save(tmp_path / "adapter")
    assert LightColPali(colpali, tmp_path / "adapter").notes["steps"] == 2


def test_pages_that_also_answer_are_no_negatives(colpali: Path, pairs: list[Pair]) -> None:
    """With every page an answer of every question, there is nothing to learn."""
    encoder = LightColPali(colpali)
    everything = [Pair(one.question, other.image) for one in pairs[:3] for other in pairs[:3]]
    assert fine_tune(encoder, everything, K, FAST) == [0.0] * 12


def test_gradients_reach_every_vector_and_no_padding() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(2, 9, 8, requires_grad=True), dim=-1)
    vectors.retain_grad()
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, 2:] = False
    merged, used = merged_vectors(vectors, real, 4)
    assert used.tolist() == [[True] * 4, [True, True, False, False]]
    assert not merged[1, 2:].any()
    torch.testing.assert_close(merged[1, :2], vectors[1, :2])
    direction = torch.randn(8)
    torch.autograd.backward((merged @ direction).sum())
    assert vectors.grad is not None
    assert (vectors.grad.any(-1) == real).all()


def test_a_page_does_not_depend_on_its_neighbours(
    folder: Path, pictures: Path, pairs: list[Pair]
) -> None:
    encoder = LightColPali(folder)
    images = [p.image for p in pairs]
    together = encoder.encode_pages(images)
    for image, rows in zip(images, together, strict=True):
        np.testing.assert_allclose(encoder.encode_pages([image])[0], rows, atol=1e-5)
    questions = ["a?", "a much longer question, padding the other?"]
    alone = [encoder.encode_queries([question])[0] for question in questions]
    for one, other in zip(alone, encoder.encode_queries(questions), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    # a picture that is open, or its path, as well as one that is stored
    for same in (images[0].open(), pictures / "red.png"):
        assert (encoder.encode_pages([same])[0] == encoder.encode_pages(images[:1])[0]).all()
    with pytest.raises(glie.DocumentError, match=r"none\.png: no such file"):
        encoder.encode_pages([pictures / "none.png"])


def test_the_budget_of_the_paper() -> None:
    """Appendix C: five epochs of 4,000 pairs in batches of 8, 4 of them a step, and 13.3M
    parameters in the adapter of ColPali."""
    assert FineTuning().steps_for(4000) == 625
    rates = [FineTuning().rate(step, 100) for step in range(100)]
    assert max(rates) == rates[10] == 1
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    config = transformers.ColPaliConfig(
        vlm_config={
            "model_type": "paligemma",
            "projection_dim": 2048,
            "hidden_size": 2048,
            "text_config": {
                "model_type": "gemma",
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_hidden_layers": 18,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
                "head_dim": 256,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
            },
        }
    )
    with torch.device("meta"):  # shapes without weights
        model = _with_lora(transformers.ColPaliForRetrieval(config), FineTuning())
    assert model.get_nb_trainable_parameters()[0] == 13_344_768


def test_a_damaged_image_is_found_before_training(
    colpali: Path, pairs: list[Pair], tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:2000])
    cut = Picture("cut.jpg", (tmp_path / "cut.jpg").read_bytes, "")
    with pytest.raises(glie.DocumentError, match=r"cut\.jpg: damaged"):
        fine_tune(LightColPali(colpali), [*pairs, Pair("a", cut)], K, FAST)


def test_one_page_is_not_enough(colpali: Path, pairs: list[Pair]) -> None:
    encoder = LightColPali(colpali)
    for too_few in ([], pairs[:1], [pairs[0], Pair("other", pairs[0].image)]):
        with pytest.raises(glie.InputError, match="at least two pages"):
            fine_tune(encoder, too_few, K, FAST)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps: expected a whole number of at least 1, found 0"),
        ({"batch": 1}, "batch: expected a whole number of at least 2, found 1"),
        ({"rank": True}, "rank: expected a whole number"),
        ({"dropout": 1.0}, "dropout and warmup: expected shares"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(glie.InputError, match=message):
        FineTuning(**settings)


def test_models_that_cannot_be_used(colpali: Path, pairs: list[Pair], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(glie.EncoderError, match="empty: not a transformers ColPali or ColQwen2"):
        LightColPali(tmp_path / "empty")

    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(glie.EncoderError, match="bert: a bert model, expected colpali or colqwen2"):
        LightColPali(tmp_path / "bert")

    pickled = shutil.copytree(colpali, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(glie.EncoderError, match="safetensors"):
        LightColPali(pickled)

    encoder = LightColPali(colpali)
    with pytest.raises(glie.InputError, match="nothing to save"):
        encoder.save(tmp_path / "adapter")
    with pytest.raises(glie.InputError, match="k: expected a budget"):
        encoder.codes([pairs[0].image], ["a"])
    with pytest.raises(glie.InputError, match="found a single string"):
        encoder.encode_queries("what?")


def test_adapters_that_cannot_be_used(colpali: Path, pairs: list[Pair], tmp_path: Path) -> None:
    encoder = LightColPali(colpali)
    fine_tune(encoder, pairs, K, FineTuning(rank=2, steps=1, accumulation=1))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("a")
    with pytest.raises(glie.EncoderError, match="not empty and not an adapter"):
        encoder.save(tmp_path / "taken")
    with pytest.raises(glie.EncoderError, match="a file; an adapter is a folder"):
        encoder.save(tmp_path / "taken" / "mine.txt")
    with pytest.raises(glie.EncoderError, match="taken: not an adapter"):
        LightColPali(colpali, tmp_path / "taken")

    adapter = tmp_path / "adapter"
    encoder.save(adapter)
    with pytest.raises(glie.EncoderError, match="an adapter, not a model"):
        LightColPali(adapter)
    other = saved("colqwen2", tmp_path / "other")
    with pytest.raises(glie.EncoderError, match=r"adapter: made for another model, '.*model'"):
        LightColPali(other, adapter)

    weights = adapter / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(glie.EncoderError, match="adapter: damaged: "):
        LightColPali(colpali, adapter)
    tensors = safetensors.torch.load(whole)
    tensors.pop(next(iter(tensors)))
    weights.write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(glie.EncoderError, match="adapter: damaged: Found missing adapter keys"):
        LightColPali(colpali, adapter)
    weights.unlink()
    torch.save({}, adapter / "adapter_model.bin")  # pickled weights are not looked at
    with pytest.raises(glie.EncoderError, match=r"adapter_model\.safetensors is missing"):
        LightColPali(colpali, adapter)


def test_the_command(run: Run, folder: Path, pictures: Path, tmp_path: Path) -> None:  # noqa: F811
    to = tmp_path / "adapter"
    arguments = ("light-colpali", pictures, "--model", folder, "--to", to, "--k", 2, "--steps", 2)
    done = run(*arguments, "--json")
    assert done.code == 0
    assert (done.json["k"], done.json["pairs"], done.json["steps"]) == (2, 6, 2)
    assert len(done.json["losses"]) == 2
    assert "2 of 2 steps, loss " in done.err
    assert LightColPali(folder, to).k == 2
    assert json.loads((to / "light-colpali.json").read_text())["model"] == str(folder)

    done = run(*arguments)
    assert done.code == 0
    assert done.out.startswith(f"{to}: ")
    assert "trained on 6 pairs" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none", "--model", "MODEL", "--to", "new"], "none: no such folder"),
        (["SET", "--model", "SET", "--to", "new"], "not a transformers ColPali or ColQwen2 model"),
        (["SET", "--model", "MODEL", "--to", "SET"], "not empty and not an adapter"),
        (["SET", "--model", "MODEL", "--to", "new", "--k", "0"], "k: expected a whole number"),
        (["SET", "--model", "MODEL", "--to", "new", "--steps", "0"], "steps: expected a whole"),
    ],
)
def test_errors_of_the_command(
    run: Run,  # noqa: F811
    colpali: Path,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"MODEL": str(colpali), "SET": str(pictures)}
    done = run("light-colpali", *[places.get(argument, argument) for argument in arguments])
    assert done.code == (2 if "0" in arguments else 1)  # 2: a mistyped option
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("new").exists()


def test_an_interrupted_command(
    run: Run,  # noqa: F811
    colpali: Path,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glie.evaluation.light_colpali._loss", interrupted)
    to = tmp_path / "adapter"
    done = run("light-colpali", pictures, "--model", colpali, "--to", to)
    assert done.code == 130
    assert f"interrupted after 0 steps; {to} is what was learned so far" in done.err
    assert LightColPali(colpali, to).notes["interrupted"]
