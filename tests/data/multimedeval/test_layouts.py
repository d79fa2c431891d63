"""A source gives the same documents however it is laid out: packed or not, of its authors or of the Hub, or nested."""

import gzip
import json
import shutil

import pytest

from ...damages import content, lost, parquet_rows
from ...multimedeval_sources import json_lines, put, put_parquet, put_zip
from ...tables import each_row

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")

MEDNLI = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
REPORTS = "mimic-cxr-reports"


def as_it_is(below):
    return lambda folder, _: folder / below


def unpacked(archive, below=""):
    def run(folder, target):
        shutil.unpack_archive(folder / archive, target)
        return target / below

    return run


def with_more(archive, *names):
    """What else is in the archive has names like those of the real files."""

    def run(folder, _):
        put_zip(folder / archive, {**content(folder / archive), **dict.fromkeys(names, "{}")})
        return folder

    return run


def medqa_of_the_hub(folder, target):
    for name, data in content(folder / "data_clean.zip").items():
        rows = [json.loads(line) for line in data.splitlines()]
        listed = [{**row, "options": [{"key": k, "value": v} for k, v in row["options"].items()]} for row in rows]
        split = name.rpartition("/")[2].removesuffix(".jsonl")
        put_parquet(target / "med_qa_en_source" / split / "0000.parquet", listed)
    return target


def pubmedqa_of_the_hub(folder, target):
    for split, data in zip(("test", "train"), content(folder / "pqal.zip").values(), strict=True):
        rows = [
            {
                "id": key,
                "question_id": key,
                "document_id": key,
                "question": entry["QUESTION"],
                "type": "yesno",
                "choices": ["yes", "no", "maybe"],
                "context": " ".join(entry["CONTEXTS"]),
                "answer": [entry["final_decision"]],
            }
            for key, entry in json.loads(data).items()
        ]
        put_parquet(target / "pubmed_qa_labeled_fold1_bigbio_qa" / split / "0000.parquet", rows)
    return target


def medmcqa_of_its_authors(folder, target):
    """Right options are counted from one there."""
    for split, name in (("validation", "dev"), ("train", "train")):
        rows = parquet_rows(folder / "data" / f"{split}-00000-of-00001.parquet")
        put(target / f"{name}.json", json_lines({**row, "cop": row["cop"] + 1} for row in rows))
    return target


def shards(bounds, ending=""):
    """Distribute the rows of each split over several files."""

    def run(folder, target):
        for split, starts in bounds.items():
            files = sorted((folder / "data").glob(f"{split}-*.parquet"))
            rows = [row for file in files for row in parquet_rows(file)]
            for part, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
                put_parquet(target / f"{split}-{part:05d}-of-{len(starts):05d}{ending}.parquet", rows[start:end])
        return target

    return run


def vqa_converted_by_the_hub(folder, target):
    for split in ("test", "train"):
        rows = [row for file in sorted((folder / "data").glob(f"{split}-*")) for row in parquet_rows(file)]
        put_parquet(target / "default" / split / "0000.parquet", rows)
    return target


def slake_unpacked(below):
    """Unpack the images into a folder, and only the first one if the archive stays."""

    def run(folder, _):
        members = content(folder / "imgs.zip")
        for name, data in members.items() if below else [*members.items()][:1]:
            put(folder / (below or "imgs") / name.removeprefix("imgs/"), data)
        if below:
            (folder / "imgs.zip").unlink()
        return folder

    return run


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


def volumes_renamed(folder, _):
    (folder / "dataset" / "valid").rename(folder / "dataset" / "valid_fixed")
    return folder


def pad_parts(folder):
    return {path.stem: content(path) for path in sorted(folder.glob("imgs_part_*.zip"))}


def pad_in_folders(folder, _):
    for name in pad_parts(folder):
        shutil.unpack_archive(folder / f"{name}.zip", folder)
        (folder / f"{name}.zip").unlink()
    return folder


def pad_as_published(is_named):
    """Put the archives of images into one with the table, which the user names itself or by its folder."""

    def run(folder, target):
        packed = {f"images/{path.name}": path.read_bytes() for path in folder.glob("imgs_part_*.zip")}
        (folder / "split").rename(target / "split")
        archive = put_zip(
            target / "zr7vgbcyr2-1.zip", {**packed, "metadata.csv": (folder / "metadata.csv").read_bytes()}
        )
        return archive if is_named else target

    return run


def pad_split_as_text(folder, _):
    for split in ("test", "train"):
        path = folder / "split" / "data" / f"{split}-00000-of-00001.parquet"
        ids = [str(row["ids"]) for row in parquet_rows(path)]
        path.unlink()
        put(folder / "split" / f"{split}.csv", "\n".join(["ids", *ids]) + "\n")
    return folder


def notes_nested(is_parquet):
    def run(folder, target):
        nested("physionet.org", "files", "mimiciii", "1.4", plain=["NOTEEVENTS.csv"])(folder, target)
        (old,) = target.rglob("idsTest.csv")
        if is_parquet:
            ids = [{"ids": int(line)} for line in old.read_text().split()[1:]]
            put_parquet(target / "split" / "default" / "test" / "0000.parquet", ids)
            shutil.rmtree(old.parent)
        else:
            old.rename(target / "idsTest.csv")
        return target

    return run


def reports_unpacked(below):
    def run(folder, _):
        shutil.unpack_archive(folder / f"{REPORTS}.zip", folder / below)
        (folder / f"{REPORTS}.zip").unlink()
        return folder

    return run


def reports_in_physionets_tree(below, packed=False):
    """Images and reports are projects of their own there; the user names the folder of both, or one above."""

    def run(folder, target):
        files = target / "physionet.org" / "files"
        texts = content(folder / f"{REPORTS}.zip")
        (folder / f"{REPORTS}.zip").unlink()
        (files / "mimic-cxr-jpg").mkdir(parents=True)
        folder.rename(files / "mimic-cxr-jpg" / "2.0.0")
        if packed:
            members = {f"{REPORTS}/{name}": text for name, text in texts.items()}
            put_zip(files / "mimic-cxr" / "2.1.0" / f"{REPORTS}.zip", members)
        else:
            for name, text in texts.items():
                put(files / "mimic-cxr" / "2.0.0" / name, text)
        return target / below

    return run


def windows_line_ends(folder, _):
    texts = content(folder / f"{REPORTS}.zip")
    put_zip(folder / f"{REPORTS}.zip", {name: text.replace(b"\n", b"\r\n") for name, text in texts.items()})
    return folder


LAYOUTS = [
    ("medqa", as_it_is("data_clean.zip")),
    ("medqa", unpacked("data_clean.zip", "data_clean/questions")),
    (
        "medqa",
        with_more(
            "data_clean.zip",
            "data_clean/questions/US/4_options/phrases_no_exclude_test.jsonl",
            "data_clean/questions/Taiwan/test.jsonl",
            "__MACOSX/data_clean/questions/US/test.jsonl",
        ),
    ),
    ("medqa", medqa_of_the_hub),
    ("medmcqa", shards({"validation": (0, 3, 4), "train": (0, 4)}, "-af")),
    ("medmcqa", medmcqa_of_its_authors),
    ("pubmedqa", with_more("pqal.zip", "pqal_fold0/train_set.json")),
    ("pubmedqa", unpacked("pqal.zip")),
    ("pubmedqa", pubmedqa_of_the_hub),
    ("mednli", unpacked(f"{MEDNLI}.zip")),
    ("path_vqa", vqa_converted_by_the_hub),
    ("slake", slake_unpacked("imgs")),
    ("slake", slake_unpacked("")),
    ("octmnist", as_it_is("octmnist.npz")),
    ("pad_ufes_20", pad_in_folders),
    ("pad_ufes_20", pad_as_published(is_named=True)),
    ("pad_ufes_20", pad_as_published(is_named=False)),
    ("pad_ufes_20_disjoint", pad_split_as_text),
    ("vindr_mammo", nested("physionet.org", "files", "vindr-mammo", "1.0.0")),
    (
        "mimic_cxr_classification",
        nested(
            *("physionet.org", "files", "mimic-cxr-jpg", "2.0.0"),
            plain=["mimic-cxr-2.0.0-split.csv", "mimic-cxr-2.0.0-chexpert.csv"],
        ),
    ),
    ("mimic_iii_summary", notes_nested(is_parquet=True)),
    ("mimic_iii_summary", notes_nested(is_parquet=False)),
    ("mimic_cxr_report", reports_unpacked("")),
    ("mimic_cxr_report", reports_unpacked(REPORTS)),
    ("mimic_cxr_report", reports_in_physionets_tree("")),
    ("mimic_cxr_report", reports_in_physionets_tree("", packed=True)),
    ("mimic_cxr_report", windows_line_ends),
    ("ct_rate_report", nested("ct_rate")),
    ("ct_rate_report", volumes_renamed),
]


@each_row("name, lay_out", LAYOUTS)
def test_other_layouts_are_the_same(source, prepared, tmp_path, name, lay_out):
    folder = source(name)
    manifest, *expected = prepared(name, folder)
    (tmp_path / "target").mkdir()
    again, *documents = prepared(name, lay_out(folder, tmp_path / "target"))
    assert documents == expected
    assert (again.fingerprint, again.left_out) == (manifest.fingerprint, manifest.left_out)


def test_shards_belong_together(source, prepared, complains):
    """A missing one is named, and so is one of another copy; that of a training split costs the examples only."""
    folder = source("medmcqa") / "data"
    first = folder / "validation-00000-of-00001.parquet"
    (row, *_) = parquet_rows(first)
    first.rename(folder / "validation-00000-of-00002.parquet")
    complains("medmcqa", folder.parent, "part 00001 of 00002 is missing")
    put_parquet(folder / "validation-00001-of-00002.parquet", [row])
    put_parquet(folder / "validation-00001-of-00002-old.parquet", [row])
    complains("medmcqa", folder.parent, "its parts belong to several copies")
    lost("validation-00001-of-00002-old.parquet")(folder)
    (folder / "train-00000-of-00001.parquet").rename(folder / "train-00000-of-00002.parquet")
    complains("medmcqa", folder.parent, "validation-00001-of-00002.parquet row 1 has the id 'q0'")
    put_parquet(folder / "validation-00001-of-00002.parquet", [{**row, "id": "new"}])
    manifest, documents, shots = prepared("medmcqa", folder.parent)
    assert (len(documents), shots) == (7, [])
    assert "part 00001 of 00002 is missing" in manifest.left_out[-1]


@each_row(
    "name, written, sentence",
    [
        ("empty/x", "", "{tmp_path}/empty holds no med_qa_en_source/test/*.parquet"),
        ("notes.txt", "no data", "{tmp_path}/notes.txt is no folder and no zip archive and holds no"),
        ("nowhere", None, "{tmp_path}/nowhere does not exist; give the path of data_clean.zip"),
    ],
)
def test_a_source_that_is_none(tmp_path, complains, name, written, sentence):
    if written is not None:
        put(tmp_path / name, written)
    complains("medqa", tmp_path / name.removesuffix("/x"), sentence.format(tmp_path=tmp_path))
