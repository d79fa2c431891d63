"""Where weights are looked for, settings of metrics with a model, and the cache of results by text."""

from pathlib import Path

import huggingface_hub
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.errors import MedTasksError, UnknownName, WeightsMissing
from medtasks.metrics.model_settings import (
    WEIGHTS,
    ModelSettings,
    TextCache,
    fetch,
    text_key,
    weights_folder,
    weights_path,
)

from ..tables import each_row


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


ROBERTA = ("config.json", "vocab.json", "merges.txt", "model.safetensors")


@each_row("name", WEIGHTS)
def test_what_is_missing_is_named_with_source_size_and_command(name):
    info = WEIGHTS[name]
    with pytest.raises(WeightsMissing) as raised:
        weights_path(name)
    said = str(raised.value)
    assert str(weights_folder(name)) in said
    assert info.source in said
    assert f"{info.size:,.0f} MB" in said
    assert f"'medtasks weights fetch {name}'" in said
    assert "\n" not in said


def test_files_and_folders_are_found_and_half_a_download_does_not_count():
    archive = put(weights_folder("radgraph"), "radgraph.tar.gz") / "radgraph.tar.gz"
    assert weights_path("radgraph") == archive
    assert weights_path("distilroberta-base", archive) == archive
    folder = put(weights_folder("distilroberta-base"), *ROBERTA)
    assert weights_path("distilroberta-base") == folder
    for gone in ("config.json", "model.safetensors"):
        (folder / gone).unlink()
        with pytest.raises(WeightsMissing, match="incomplete"):
            weights_path("distilroberta-base")
        (folder / gone).touch()


def test_fetching_asks_for_the_files_of_the_entry_only_and_tells_their_place_without_network(
    monkeypatch,
):
    asked = []

    def download(hub, allow_patterns, local_dir):
        asked.append((hub, allow_patterns, local_dir))
        if "chexbert.pth" not in allow_patterns:
            raise ConnectionError("no route to host\nand more")
        put(Path(local_dir), "chexbert.pth")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert fetch("chexbert") == weights_folder("chexbert") / "chexbert.pth"
    assert asked == [("StanfordAIMI/RRG_scorers", ["chexbert.pth"], weights_folder("chexbert"))]
    with pytest.raises(WeightsMissing) as raised:
        fetch("radgraph-xl")
    for part in (
        "no route to host and more",
        f"put radgraph-xl.tar.gz into {weights_folder('radgraph-xl')}",
    ):
        assert part in str(raised.value)


def test_settings_from_the_environment(monkeypatch):
    assert ModelSettings.from_environment() == ModelSettings()
    monkeypatch.setenv("MEDTASKS_METRICS_DEVICE", " cpu ")
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "bfloat16")
    assert ModelSettings.from_environment() == ModelSettings(device="cpu", dtype="bfloat16")
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float16")
    with pytest.raises(MedTasksError, match="MEDTASKS_METRICS_DTYPE=float16 is unknown"):
        ModelSettings.from_environment()
    assert hash(ModelSettings()) == hash(ModelSettings())
    with pytest.raises(UnknownName, match="did you mean 'radgraph'"):
        ModelSettings(named_weights={"radgrph": Path("x")})


def test_a_repository_on_the_hub_is_downloaded_once(monkeypatch):
    asked = []

    def download(repository, *, allow_patterns, local_dir):
        asked.append((repository, tuple(allow_patterns)))
        put(Path(local_dir), *ROBERTA)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    given = Path("somebody/my-roberta.v2")
    first = weights_path("distilroberta-base", given)
    assert first.name == "somebody--my-roberta.v2"
    assert weights_path("distilroberta-base", given) == first
    assert asked == [("somebody/my-roberta.v2", WEIGHTS["distilroberta-base"].files)]
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *_, local_dir, **__: put(Path(local_dir), "a"),
    )
    with pytest.raises(
        WeightsMissing, match=r"huggingface\.co/somebody/else lacks some of config\.json"
    ):
        weights_path("distilroberta-base", Path("somebody/else"))


TEXTS = st.lists(st.text(max_size=6), max_size=3)


@given(TEXTS, TEXTS)
def test_keys_tell_texts_and_their_borders_apart(one, other):
    assert (text_key(*one) == text_key(*other)) == (one == other)
    assert text_key("\ud83d") != text_key("?")


def test_values_come_back(tmp_path):
    cache = TextCache(tmp_path / "deep" / "folder", "model")
    values = {text_key(str(number)): bytes([number % 256]) * number for number in range(1234)}
    assert cache.get(list(values)) == {}
    cache.put(values)
    assert cache.get([*values, text_key("unknown")]) == values
    cache.put({text_key("1"): b"new"})
    again, other = (
        TextCache(tmp_path / "deep" / "folder", model) for model in ("model", "other")
    )
    assert again.get([text_key("1")]) == {text_key("1"): b"new"}
    assert other.get([text_key("1")]) == {}
