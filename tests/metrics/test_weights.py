"""Where weights are looked for, and how explicit paths reach a metric."""

from pathlib import Path

import huggingface_hub
import pytest

from medtasks.errors import MedTasksError, UnknownName, WeightsMissing
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, fetch, weights_folder, weights_path

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
    assert f"https://huggingface.co/{info.hub}" in said
    assert f"{info.size:,.0f} MB" in said
    assert f"'medtasks weights fetch {name}'" in said
    assert "\n" not in said


def test_single_files_and_folders_are_found():
    archive = put(weights_folder("radgraph"), "radgraph.tar.gz") / "radgraph.tar.gz"
    assert weights_path("radgraph") == archive
    assert weights_path("distilroberta-base", archive) == archive
    with pytest.raises(WeightsMissing, match=r"mine\.tar\.gz does not exist"):
        weights_path("radgraph", Path("/nowhere/mine.tar.gz"))
    folder = put(weights_folder("distilroberta-base"), *ROBERTA)
    assert weights_path("distilroberta-base") == folder


def test_a_shared_folder_goes_before_the_own_and_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_WEIGHTS", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    own = put(weights_folder("radgraph"), "radgraph.tar.gz")
    assert weights_path("radgraph") == own / "radgraph.tar.gz"
    there = put(tmp_path / "radgraph", "radgraph.tar.gz") / "radgraph.tar.gz"
    assert weights_path("radgraph") == fetch("radgraph") == there


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_half_a_download_does_not_count(gone):
    put(weights_folder("distilroberta-base"), *(name for name in ROBERTA if name != gone))
    with pytest.raises(WeightsMissing, match="incomplete"):
        weights_path("distilroberta-base")


def test_fetching_asks_for_the_files_of_the_entry_only(monkeypatch):
    asked = []

    def download(hub, allow_patterns, local_dir):
        asked.append((hub, allow_patterns, local_dir))
        put(Path(local_dir), "chexbert.pth")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert fetch("chexbert") == weights_folder("chexbert") / "chexbert.pth"
    assert asked == [("StanfordAIMI/RRG_scorers", ["chexbert.pth"], weights_folder("chexbert"))]


def test_without_network_the_place_for_the_files_is_told(monkeypatch):
    def download(*_, **__):
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(WeightsMissing) as raised:
        fetch("radgraph-xl")
    assert "no route to host" in str(raised.value)
    assert f"put radgraph-xl.tar.gz into {weights_folder('radgraph-xl')}" in str(raised.value)
    assert "\n" not in str(raised.value)


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
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, local_dir, **__: put(Path(local_dir), "a"))
    with pytest.raises(WeightsMissing, match=r"huggingface\.co/somebody/else lacks some of config\.json"):
        weights_path("distilroberta-base", Path("somebody/else"))


@each_row("path", ["weights/chexbert.pth", "/nowhere/at/all", "/a/b", "a/b/c", "roberta"])
def test_a_path_that_is_not_there_is_no_repository(monkeypatch, path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    with pytest.raises(WeightsMissing, match="does not exist"):
        weights_path("chexbert", Path(path))
