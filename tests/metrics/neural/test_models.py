"""What holds for all three models: what they say of a text depends on nothing else, and is kept on disk."""

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from medtasks.curate.pairs.encoders import open_encoder
from medtasks.errors import MedTasksError
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import rate_networks
from medtasks.metrics.neural.bertscore import BertScore, ContextualEncoder
from medtasks.metrics.neural.chexbert import Chexbert
from medtasks.metrics.neural.chexbert_network import ChexbertNetwork
from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph import RadGraph
from medtasks.metrics.neural.radgraph_network import WordEncoder

from ... import tiny_chexbert
from ...tables import each_row
from .radgraph.random_archive import invented_reports

TEXTS = [
    *invented_reports(8, 25),
    *invented_reports(2, 120, seed=1),
    *invented_reports(3, 2, seed=2),
    *("", " \n\t", "\u200b", "ödem — 肺 😀", "No edema.", "effusion " * 900),
]
TEXTS = [*TEXTS, TEXTS[3]]


def by_chexbert(settings, texts):
    return [(reading.classes, reading.vector) for reading in Chexbert(settings)(texts)]


def by_radgraph(settings, texts):
    return [
        (json.dumps(annotation), np.zeros(0))
        for annotation in RadGraph("radgraph", settings).annotate(texts)
    ]


def by_bertscore(settings, pairs):
    references, hypotheses = ([pair[side] for pair in pairs] for side in (0, 1))
    matches = BertScore("distilroberta-base", 2, settings).matches(references, hypotheses)
    return [
        (
            (one.reference_ids.tolist(), one.hypothesis_ids.tolist()),
            np.append(one.reference_best, one.hypothesis_best),
        )
        for one in matches
    ]


# By model: fixture with a folder in miniature; function that returns for each text, or pair of texts, what must be
# equal, and numbers, which another batch rounds in another way; class and method that a batch goes through, whose first
# argument is as long as the batch; title on the progress bar.
MODELS = {
    "chexbert": ("tiny", by_chexbert, (ChexbertNetwork, "forward"), "CheXbert"),
    "radgraph": ("v1", by_radgraph, (WordEncoder, "vectors"), "RadGraph"),
    "bertscore": ("roberta", by_bertscore, (ContextualEncoder, "vectors"), "BERTScore"),
}


@pytest.fixture(params=MODELS)
def model(request):
    folder, read, network, title = MODELS[request.param]
    weights: Path = request.getfixturevalue(folder)
    items = (
        list(zip(TEXTS, TEXTS[::-1], strict=True)) if request.param == "bertscore" else TEXTS
    )
    settings = ModelSettings(
        named_weights=named(request.param, weights), device="cpu", cache=None, progress=False
    )
    return SimpleNamespace(
        settings=settings, read=read, items=items, network=network, title=title
    )


def named(model, weights):
    return {"distilroberta-base" if model == "bertscore" else model: weights}


@pytest.fixture
def watch(model, monkeypatch):
    """Return a function that shows every batch's size to another, before the network runs on the batch."""
    owner, method = model.network
    original = getattr(owner, method)

    def watched(see):
        def through(self, batch, *rest):
            see(len(batch))
            return original(self, batch, *rest)

        monkeypatch.setattr(owner, method, through)

    return watched


def assert_same(one, other, tolerance=1e-5):
    assert [exact for exact, _ in one] == [exact for exact, _ in other]
    for (_, numbers), (_, others) in zip(one, other, strict=True):
        np.testing.assert_allclose(numbers, others, atol=tolerance, rtol=0)


def test_results_do_not_depend_on_batches_company_or_order(model):
    together = model.read(model.settings, model.items)
    assert (
        len({str(exact) for exact, _ in together}) > 4
    )  # else the comparisons would say nothing
    for batch_size in (1, 3, 100):
        assert_same(
            model.read(replace(model.settings, batch_size=batch_size), model.items), together
        )
    assert_same(
        [model.read(model.settings, [item])[0] for item in model.items[::4]], together[::4]
    )
    order = random.Random(0).sample(range(len(model.items)), len(model.items))
    shuffled = model.read(model.settings, [model.items[position] for position in order])
    assert_same(shuffled, [together[position] for position in order])
    assert model.read(model.settings, []) == []


def test_memory_that_runs_out_changes_nothing(model, watch, monkeypatch):
    monkeypatch.setattr(
        "gc.collect", lambda: None
    )  # half a second with all that tests have loaded
    expected = model.read(model.settings, model.items)
    refused = []

    def small(size):
        if size > 2:
            refused.append(size)
            raise torch.OutOfMemoryError("out of memory")

    watch(small)
    assert_same(model.read(model.settings, model.items), expected)
    assert refused


def test_a_second_run_or_process_needs_no_network(model, watch, tmp_path, monkeypatch):
    kept = replace(model.settings, cache=tmp_path)
    first = model.read(kept, model.items)
    watch(lambda size: pytest.fail("the network was run"))
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert_same(model.read(kept, model.items[::-1])[::-1], first, tolerance=0)
    monkeypatch.undo()
    watch(lambda size: pytest.fail("the network was run"))
    new = ("new words", "other words") if isinstance(model.items[0], tuple) else "new words"
    for settings, items in (
        (kept, [*model.items, new]),
        (replace(kept, dtype="bfloat16"), model.items),
    ):
        with pytest.raises(pytest.fail.Exception):
            model.read(settings, items)


def test_only_what_is_new_and_that_once_goes_through_the_network(model, watch, tmp_path):
    kept = replace(model.settings, cache=tmp_path)
    model.read(kept, model.items[:4])
    seen = []
    watch(seen.append)
    new = model.items[4:6]
    spaced = [
        tuple(f" {text}\n" for text in item) if isinstance(item, tuple) else f" {item}\n"
        for item in new
    ]
    model.read(kept, [*model.items[:4], *new, *spaced, *new])
    assert sum(seen) == 2  # of the two pairs of texts one has an empty side


def test_what_was_computed_before_a_failure_is_kept(model, watch, tmp_path):
    kept = replace(model.settings, cache=tmp_path, batch_size=1)
    sizes = []

    def failing(size):
        sizes.append(size)
        if len(sizes) == 4:
            raise KeyboardInterrupt

    items = model.items[:4]
    watch(failing)
    with pytest.raises(KeyboardInterrupt):
        model.read(kept, items)
    model.read(kept, items)
    again = len(sizes) - 4
    model.read(replace(kept, cache=None), items)
    assert 0 < again < len(sizes) - 4 - again


def replaced(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def other_spans(folder):
    state = torch.load(folder / "radgraph" / "weights.th", weights_only=True)
    state["_endpoint_span_extractor._span_width_embedding.weight"] += 1
    torch.save(state, folder / "radgraph" / "weights.th")


def larger(folder):
    state = load_file(folder / "model.safetensors")
    save_file(
        {key: 1.5 * value for key, value in state.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )


@each_row(
    "name, change",
    [
        (
            "chexbert",
            lambda folder: torch.save(tiny_chexbert.checkpoint(1), folder / "chexbert.pth"),
        ),
        (
            "chexbert",
            lambda folder: replaced(
                folder / "bert-base-uncased" / "vocab.txt", "there", "fluid"
            ),
        ),
        ("radgraph", other_spans),
        (
            "radgraph",
            lambda folder: replaced(
                folder / "radgraph/vocabulary/radgraph__ner_labels.txt", "S-U", "S-X"
            ),
        ),
        (
            "radgraph",
            lambda folder: replaced(folder / "encoder" / "vocab.txt", "effusion", "infusion"),
        ),
        ("bertscore", larger),
        ("bertscore", lambda folder: replaced(folder / "vocab.json", '"e"', '"e_"')),
    ],
)
def test_what_results_depend_on_is_not_taken_from_the_cache(name, change, request, tmp_path):
    folder, read, *_ = MODELS[name]
    copy = Path(shutil.copytree(request.getfixturevalue(folder), tmp_path / "copy"))
    settings = ModelSettings(
        named_weights=named(name, copy), device="cpu", cache=tmp_path / "cache", progress=False
    )
    items = (
        [("the heart is large", "mild edema")] if name == "bertscore" else ["small effusion"]
    )
    read(settings, items)
    change(copy)
    assert_same(read(settings, items), read(replace(settings, cache=None), items), tolerance=0)
    assert len(list((tmp_path / "cache").iterdir())) == 2


CODE = """
from pathlib import Path
Path(__file__).with_name("touched").touch()
Path({marker!r}).touch()
from transformers import PretrainedConfig
class Own(PretrainedConfig):
    model_type = "own"
"""


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A checkpoint that brings code, while somebody answers "y" to every question; the code leaves a file."""
    folder = tmp_path / "own_code"
    folder.mkdir()
    (folder / "own.py").write_text(CODE.format(marker=str(tmp_path / "attacked")))
    auto_map = dict.fromkeys(
        ("AutoConfig", "AutoModel", "AutoModelForTokenClassification"), "own.Own"
    )
    config = {"model_type": "own", "auto_map": auto_map | {"AutoImageProcessor": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    tokenizer = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\na")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").touch()
    monkeypatch.setattr("builtins.input", lambda _: "y")
    yield folder
    assert not (tmp_path / "attacked").exists()


def radgraph_of(folder, v1):
    archive = open_archive(
        "radgraph", ModelSettings(named_weights={"radgraph": v1, "pubmedbert": folder})
    )
    WordEncoder(archive, {}, torch.device("cpu"), "float32")


@each_row(
    "load",
    [
        lambda folder, _: ContextualEncoder(folder, 1, ModelSettings(device="cpu")),
        lambda folder, _: rate_networks._load(
            "biolord", AutoModel, ModelSettings(named_weights={"biolord": folder})
        ),
        lambda folder, _: open_encoder(str(folder), "cpu").load(),
        radgraph_of,
    ],
)
def test_code_of_a_checkpoint_is_neither_run_nor_asked_about(load, own_code, v1):
    with pytest.raises(MedTasksError, match="it comes with code of its own, which is not run"):
        load(own_code, v1)


def test_layers_have_caches_of_their_own(roberta, tmp_path):
    weights = {"distilroberta-base": roberta}
    settings = ModelSettings(
        named_weights=weights, device="cpu", cache=tmp_path, progress=False
    )
    for layer in (1, 2):
        BertScore("distilroberta-base", layer, settings).matches(["the heart"], ["edema"])
    assert len(list(tmp_path.iterdir())) == 2


def test_bfloat16_is_close_and_float32_holds_in_a_process_that_allows_less(model):
    exact, rough = (
        model.read(replace(model.settings, dtype=dtype), model.items)
        for dtype in ("float32", "bfloat16")
    )
    distances = [
        np.abs(a - b).max() for (_, a), (_, b) in zip(exact, rough, strict=True) if len(a)
    ]
    assert not distances or 0 < max(distances) < 0.2
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=model.title == "RadGraph"):
            assert_same(model.read(model.settings, model.items), exact, tolerance=0)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_random_numbers_stay_as_they_are_and_progress_is_shown_if_asked_for(model, capsys):
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    model.read(model.settings, model.items[:3])
    assert torch.equal(torch.rand(2), wanted)
    assert capsys.readouterr().err == ""
    model.read(replace(model.settings, progress=True), model.items[:2])
    assert f"{model.title}: 100%" in capsys.readouterr().err
