"""A source gives the same documents packed or not, at the top of its publisher's folders or below them."""

import gzip
import shutil

import pytest

from ...damages import content, parquet_rows
from ...multimedeval_sources import picture, put, put_parquet, put_zip
from ...tables import each_row

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")

MEDNLI = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
REPORTS = "mimic-cxr-reports"


def unpacked(archive, below="", *, keep=False):
    def run(folder, target):
        target = folder if keep else target
        shutil.unpack_archive(folder / archive, target / below)
        (folder / archive).unlink()
        return target

    return run


def with_more(archive, *names):
    """What else is in the archive has names like those of the real files."""

    def run(folder, _):
        put_zip(folder / archive, {**content(folder / archive), **dict.fromkeys(names, "{}")})
        return folder

    return run


def in_shards(folder, target):
    for split, starts in {"validation": (0, 3, 4), "train": (0, 4)}.items():
        rows = parquet_rows(folder / "data" / f"{split}-00000-of-00001.parquet")
        for part, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
            put_parquet(
                target / f"{split}-{part:05d}-of-{len(starts):05d}-af.parquet", rows[start:end]
            )
    return target


def nested(*places, plain=()):
    """Move a source into folders of its publisher's; tables are unpacked there."""

    def run(folder, target):
        inside = target.joinpath(*places)
        inside.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(inside)
        for name in plain:
            put(inside / name, gzip.decompress((inside / f"{name}.gz").read_bytes()))
            (inside / f"{name}.gz").unlink()
        return target

    return run


def notes_nested(folder, target):
    inside = nested("physionet.org", "files", "mimiciii", "1.4", plain=["NOTEEVENTS.csv"])(
        folder, target
    )
    (ids,) = inside.rglob("split")
    return ids.rename(inside / "split").parent


def pad_in_folders(folder, target):
    for path in sorted(folder.glob("imgs_part_*.zip")):
        unpacked(path.name, keep=True)(folder, target)
    return folder


def reports_in_physionets_tree(is_packed):
    """Images and reports are projects of their own there; the user names a folder above both."""

    def run(folder, target):
        files = target / "physionet.org" / "files"
        texts = content(folder / f"{REPORTS}.zip")
        (folder / f"{REPORTS}.zip").unlink()
        (files / "mimic-cxr-jpg").mkdir(parents=True)
        folder.rename(files / "mimic-cxr-jpg" / "2.0.0")
        if is_packed:
            members = {f"{REPORTS}/{name}": text for name, text in texts.items()}
            put_zip(files / "mimic-cxr" / "2.1.0" / f"{REPORTS}.zip", members)
        else:
            for name, text in texts.items():
                put(files / "mimic-cxr" / "2.0.0" / name, text)
        return target

    return run


def windows_line_ends(folder, _):
    texts = content(folder / f"{REPORTS}.zip")
    put_zip(
        folder / f"{REPORTS}.zip",
        {name: text.replace(b"\n", b"\r\n") for name, text in texts.items()},
    )
    return folder


JPG = ("physionet.org", "files", "mimic-cxr-jpg", "2.0.0")
QUESTIONS = "data_clean/questions"
LOOKALIKES = [
    f"{QUESTIONS}/US/4_options/phrases_no_exclude_test.jsonl",
    f"__MACOSX/{QUESTIONS}/US/test.jsonl",
]
LAYOUTS = [
    ("medqa", lambda folder, _: folder / "data_clean.zip"),
    ("medqa", unpacked("data_clean.zip")),
    ("medqa", with_more("data_clean.zip", f"{QUESTIONS}/Taiwan/test.jsonl", *LOOKALIKES)),
    ("medmcqa", in_shards),
    ("pubmedqa", with_more("pqal.zip", "pqal_fold0/train_set.json")),
    ("pubmedqa", unpacked("pqal.zip")),
    ("mednli", unpacked(f"{MEDNLI}.zip")),
    ("slake", unpacked("imgs.zip", keep=True)),
    ("slake", lambda folder, _: put(folder / "imgs/xmlab0/source.jpg", picture(0)).parents[2]),
    ("octmnist", lambda folder, _: folder / "octmnist.npz"),
    ("pad_ufes_20", pad_in_folders),
    ("vindr_mammo", nested("physionet.org", "files", "vindr-mammo", "1.0.0")),
    (
        "mimic_cxr_classification",
        nested(*JPG, plain=[f"mimic-cxr-2.0.0-{name}.csv" for name in ("split", "chexpert")]),
    ),
    ("mimic_iii_summary", notes_nested),
    ("mimic_cxr_report", unpacked(f"{REPORTS}.zip", keep=True)),
    ("mimic_cxr_report", unpacked(f"{REPORTS}.zip", REPORTS, keep=True)),
    ("mimic_cxr_report", reports_in_physionets_tree(is_packed=False)),
    ("mimic_cxr_report", reports_in_physionets_tree(is_packed=True)),
    ("mimic_cxr_report", windows_line_ends),
    ("ct_rate_report", nested("ct_rate")),
    (
        "ct_rate_report",
        lambda folder, _: (
            (folder / "dataset/valid").rename(folder / "dataset/valid_fixed").parents[1]
        ),
    ),
]


@each_row("name, lay_out", LAYOUTS)
def test_other_layouts_are_the_same(source, prepared, tmp_path, name, lay_out):
    folder = source(name)
    manifest, *expected = prepared(name, folder)
    (tmp_path / "target").mkdir()
    again, *documents = prepared(name, lay_out(folder, tmp_path / "target"))
    assert documents == expected
    assert (again.fingerprint, again.left_out) == (manifest.fingerprint, manifest.left_out)


@pytest.fixture
def shard(source):
    """A source whose table is the first of two parts, and one row of it."""
    folder = source("medmcqa")
    first = folder / "data" / "validation-00000-of-00001.parquet"
    (row, *_) = parquet_rows(first)
    first.rename(first.with_name("validation-00000-of-00002.parquet"))
    return folder, row


def test_a_missing_part_of_a_table_is_named(shard, complains):
    folder, _ = shard
    complains("medmcqa", folder, "part 00001 of 00002 is missing")


def test_parts_of_several_copies_are_refused(shard, complains):
    folder, row = shard
    put_parquet(folder / "data" / "validation-00001-of-00002.parquet", [row])
    put_parquet(folder / "data" / "validation-00001-of-00002-old.parquet", [row])
    complains("medmcqa", folder, "its parts belong to several copies")


def test_a_row_in_two_parts_is_refused(shard, complains):
    folder, row = shard
    put_parquet(folder / "data" / "validation-00001-of-00002.parquet", [row])
    complains("medmcqa", folder, "validation-00001-of-00002.parquet row 1 has the id 'q0'")


def test_a_missing_part_of_a_training_split_costs_the_examples_only(shard, prepared):
    folder, row = shard
    train = folder / "data" / "train-00000-of-00001.parquet"
    train.rename(train.with_name("train-00000-of-00002.parquet"))
    put_parquet(folder / "data" / "validation-00001-of-00002.parquet", [{**row, "id": "new"}])

    manifest, documents, shots = prepared("medmcqa", folder)

    assert (len(documents), shots) == (7, [])
    assert "part 00001 of 00002 is missing" in manifest.left_out[-1]
