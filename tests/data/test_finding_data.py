"""The catalogue, ``path_of``, ``provenance_of`` and ``label_of``: names that task YAML resolves."""

import os
import shutil

import pytest

from medtasks.data import label_of, path_of, provenance_of
from medtasks.data.catalogue import CATALOGUE, MEDICONFUSION, dataset_info
from medtasks.data.dataset_lookup import preparing_again
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, recipe_of, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.selecting import SELECTABLE
from medtasks.errors import UnknownName
from medtasks.home import dataset_folder, dataset_holding, datasets_folder, written_whole

from ..tables import each_row


@pytest.fixture
def prepared(source, home):
    return prepare("mediconfusion", Options(source, sample=True))


def test_catalogue(refuses):
    assert dataset_info("mediconfusion") is MEDICONFUSION
    with refuses(
        "unknown dataset 'mediconfuson'; did you mean 'mediconfusion'?", kind=UnknownName
    ):
        dataset_info("mediconfuson")
    with refuses(
        f"unknown dataset 'xyz'. All {len(CATALOGUE)}: medtasks data list", kind=UnknownName
    ):
        dataset_info("xyz")
    with refuses("did you mean 'mediconfusion'?", kind=UnknownName):
        prepare("medi_confusion", Options())


def test_every_dataset_has_a_recipe_or_is_a_part():
    for name, info in CATALOGUE.items():
        if info.part_of:
            assert info.source == CATALOGUE[info.part_of].source
            assert set(info.selection) <= set(SELECTABLE)
            assert preparing_again(name) == f"medtasks data prepare {name}"
        else:
            recipe = recipe_of(name)
            assert set(recipe.columns) & {"image_files", "image_file"}, name
            if info.reader == "medevalkit":
                assert recipe.download, name
                assert not recipe.demonstrations, name


# Sets of which the reader counts the published table, because no source states the number of evaluated rows.
COUNTED_BY_READER = {
    "multimedeval_mimic_iii_summary_head",
    "multimedeval_diff_vqa",
    "multimedeval_pad_ufes_20_disjoint",
    "iu_xray_report",
}


def test_every_dataset_declares_its_count_or_says_that_it_is_unknown():
    without_rows = {name for name, info in CATALOGUE.items() if info.rows is None}
    unknown = {name for name, info in CATALOGUE.items() if info.count_unknown}
    assert without_rows == unknown | COUNTED_BY_READER
    assert not unknown & COUNTED_BY_READER
    assert CATALOGUE["medevalkit_pmc_vqa"].rows == 33_430


def test_golden_mediconfusion_catalogue(test_data):
    from medtasks.data.named_files import file_sha256

    folder = test_data / "mediconfusion"
    assert {
        name: file_sha256(folder / name) for name in MEDICONFUSION.sha256
    } == MEDICONFUSION.sha256


@each_row("module", [path_of, provenance_of])
@each_row("name", ["medhevall", "__path__"])
def test_unknown_dataset_is_an_attribute_error_that_lists_the_known(module, name):
    with pytest.raises(AttributeError, match=rf"no dataset '{name}'; known: .*mediconfusion"):
        getattr(module, name)


def test_an_unprepared_or_damaged_set(home, final):
    assert path_of.mediconfusion == str(final)
    assert type(path_of.mediconfusion) is str
    assert label_of.mediconfusion_ps == "mediconfusion_ps"
    assert provenance_of.mediconfusion.keys() == {"error"}
    assert "medtasks data prepare mediconfusion" in provenance_of.mediconfusion["error"]
    final.mkdir(parents=True)
    (final / "manifest.json").write_text("{")
    assert "is damaged" in provenance_of.mediconfusion["error"]


def test_provenance_is_that_of_the_manifest(prepared):
    facts = provenance_of.mediconfusion
    assert (facts["fingerprint"], facts["left_out"]) == (prepared.fingerprint, [])
    assert (facts["sample"], facts["complete"], facts["rows"]) == (True, True, 32)


@each_row("task", ["mediconfusion", "mediconfusion_gd", "mediconfusion_not_written_yet"])
@each_row(
    "change, mark",
    [
        ({}, " [SAMPLE DATA]"),
        ({"sample": False, "complete": False}, " [INCOMPLETE DATA]"),
        ({"sample": False}, ""),
    ],
)
def test_a_label_marks_data_that_are_not_the_published_ones(
    prepared, final, task, change, mark
):
    prepared.model_copy(update=change).write(final)
    assert getattr(label_of, task) == f"{task}{mark}"


def test_a_label_needs_the_name_of_a_dataset():
    for name in ("mediconfusions", "medi", "__path__"):
        with pytest.raises(
            AttributeError, match="no dataset name is the beginning of task name"
        ):
            getattr(label_of, name)


def test_a_label_says_that_the_published_number_is_unknown(prepared):
    name = "medevalkit_chexpert_plus_report"
    dataset_folder(name).mkdir(parents=True)
    for change, mark in (({}, "COUNT UNKNOWN"), ({"complete": False}, "INCOMPLETE DATA")):
        prepared.model_copy(update={"name": name, "sample": False, **change}).write(
            dataset_folder(name)
        )
        assert getattr(label_of, name) == f"{name} [{mark}]"


def test_moved_home_still_works(prepared, home, tmp_path, monkeypatch):
    documents = load_documents("mediconfusion")
    elsewhere = tmp_path / "else" / "where"
    shutil.move(home, elsewhere)
    monkeypatch.setenv("MEDTASKS_HOME", str(elsewhere))
    assert path_of.mediconfusion == str(elsewhere / "datasets" / "mediconfusion")
    assert load_documents("mediconfusion") == documents
    assert list(verify("mediconfusion")) == []
    assert Manifest.read(elsewhere / "datasets/mediconfusion") == prepared


def test_the_dataset_that_holds_a_path(home):
    folder = dataset_folder("drugs")
    assert [dataset_holding(path) for path in (folder, folder / "images/1.png")] == [
        "drugs",
        "drugs",
    ]
    assert [
        dataset_holding(path) for path in (datasets_folder(), home, home / "datasets2/drugs")
    ] == [None] * 3


def test_a_file_is_replaced_when_the_block_ends_and_not_when_it_fails(tmp_path):
    target = tmp_path / "folder" / "file"
    with written_whole(target) as partial:
        partial.write_text("first")
        assert not target.exists()
    with pytest.raises(IsADirectoryError), written_whole(target) as partial:
        partial.parent.write_text("no folder takes text")
    assert (target.read_text(), [*target.parent.iterdir()]) == ("first", [target])


def test_a_device_stays_what_it_is(tmp_path):
    """As root, a page for /dev/null would take its place for the whole machine."""
    device = tmp_path / "nothing"
    device.symlink_to(os.devnull)
    with written_whole(device) as partial:
        partial.write_text("gone")
    assert device.is_symlink()
    assert device.read_text() == ""
