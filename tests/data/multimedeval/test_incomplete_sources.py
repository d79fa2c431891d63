"""Rows that cannot be used are left out on request only, each named with the cause; no complaint quotes a patient."""

import gzip
import io
import shutil

import pytest
from PIL import Image

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import SourceError

from ...damages import both, changed, cut, lost, row, text, written
from ...multimedeval_sources import picture
from ...tables import each_row
from .published_files import (
    CASES,
    CT,
    DIFF,
    IDS,
    LABELS,
    MEDNLI,
    NIH,
    NOTES,
    PAD_SPLITS,
    RAD,
    SPLIT,
    VINDR,
    VOLUME,
    cases,
)

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")


def flipped(file, member, offset):
    """Damage the bytes of a member where it lies in its archive."""

    def change(data):
        start = data.index(member.encode()) + len(member) + offset
        return data[:start] + b"~" * 8 + data[start + 8 :]

    return changed(file, change)


def unpacked(archive, damage):
    """Unpack an archive before a damage."""

    def run(source):
        shutil.unpack_archive(source / archive, source)
        (source / archive).unlink()
        damage(source)

    return run


def shallow(member, length=-30):
    """Keep the beginning of a member of SLAKE's archive."""
    return changed(f"imgs.zip!{member}", lambda data: data[:length])


def copied(image, ending, data):
    """Put a copy in the place of a DICOM file."""
    return lambda source: (source / f"{image}.dicom").rename(source / f"{image}{ending}").write_bytes(data)


def file_of(values, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, kind)
    return buffer.getvalue()


def voxels(change):
    return changed(VOLUME, lambda data: gzip.compress(change(gzip.decompress(data))))


NO_IMAGE = "its image is broken ("
REPORTS_ZIP = "mimic-cxr-reports.zip!files/p10/p10000001/s1.txt"
XMLAB = "imgs/xmlab{}/source.jpg"
XMLAB_NAME = "xmlab{}/source.jpg"
SLAKE_SENTENCES = (
    f"test.json row 3: its image {XMLAB_NAME.format(1)} is missing",
    f"test.json row 5: its image {XMLAB_NAME.format(2)} is broken (",
)
LEFT_OUT = {  # dataset, damage, documents that remain, what is said of the others
    "slake": [
        (both(lost("imgs.zip!" + XMLAB.format(1)), shallow(XMLAB.format(2))), 4, *SLAKE_SENTENCES),
        (unpacked("imgs.zip", both(lost(XMLAB.format(1)), cut(XMLAB.format(2), -30))), 4, *SLAKE_SENTENCES),
    ],
    "vqa_rad": [
        (row(RAD, 4, image={"bytes": picture(1)[:-40], "path": None}), 5, f"{RAD[5:]} row 4: {NO_IMAGE}"),
        (row(RAD, 4, image=None), 5, f"{RAD[5:]} row 4: it has no image"),
    ],
    "pad_ufes_20": [
        (
            both(
                lost("imgs_part_2.zip!imgs_part_2/PAT_1_2_4.png"),
                written("imgs_part_1.zip!imgs_part_1/PAT_0_1_3.png", b"\x89PNG cut"),
            ),
            14,
            "metadata.csv row 4: its image PAT_0_1_3.png is broken (",
            "metadata.csv row 5: its image PAT_1_2_4.png is missing",
        ),
        (
            flipped("imgs_part_3.zip", "imgs_part_3/PAT_0_1_2.png", 0),
            15,
            "metadata.csv row 3: its image PAT_0_1_2.png is broken (",
        ),
    ],
    "vindr_mammo": [],
    "cbis_ddsm_mass": [
        (
            text(CASES, "1.3.3/", "1.3.99/"),
            5,
            "mass_case_description_test_set.csv row 4: dicom_info.csv has no image of its series 1.3.99",
        )
    ],
    "mimic_cxr_classification": [
        (
            lost("files/p10/p10000001/s1/d3.jpg"),
            5,
            f"{LABELS} row 2: its image files/p10/p10000001/s1/d3.jpg is missing",
        ),
        (
            text(LABELS, "10000001,1,", "10000001,9,"),
            4,
            *(f"{SPLIT} row {number}: the findings table has no row for its study" for number in (3, 4)),
        ),
    ],
    "diff_vqa": [
        (
            lost(*(f"files/p10/p10000000/s0/{name}.jpg" for name in ("d0", "d1"))),
            4,
            *(f"{DIFF} row {number}: its study s0 has no images" for number in (1, 2)),
        )
    ],
    "chestxray14": [
        (
            written("images_002/images/00000003_000.png", b"\x89PNG cut"),
            5,
            f"{NIH} row 4: its image 00000003_000.png is broken",
        )
    ],
    "mimic_cxr_report": [
        (lost("files/p10/p10000001/s1/d3.jpg"), 2, f"{SPLIT} row 3: its image 2 of 2 is missing"),
        (
            written(REPORTS_ZIP, b" x\n FINDINGS: caf\xe9\n"),
            2,
            f"{SPLIT} row 3: the report of its study is no UTF-8 text",
        ),
        (
            lost(REPORTS_ZIP),
            2,
            f"{SPLIT} row 3: the report of its study is missing (mimic-cxr-reports.zip of MIMIC-CXR has it)",
        ),
    ],
    "mimic_iii_summary": [(text(IDS, "903", "999"), 5, f"idsTest.csv row 4: its note is not in {NOTES}")],
    "ct_rate_report": [(text(CT, '"Nodule\n1."', " "), 5, "validation_reports.csv row 2: its report has no findings")],
}


@each_row("name, damage, said", cases(LEFT_OUT))
def test_what_is_left_out_on_request_only(source, complains, prepared, name, damage, said):
    folder = source(name)
    damage(folder)
    rows, *sentences = said
    complains(name, folder, *sentences, "--allow-incomplete", allow_incomplete=False)
    manifest, documents, _ = prepared(name, folder)
    assert (len(documents), manifest.complete) == (rows, False)
    told = [note for note in manifest.left_out if " not in the evaluated set: " not in note]
    assert [note.startswith(sentence) for note, sentence in zip(told, sentences, strict=False)] == [True] * len(
        sentences
    )
    assert not any(": its " in note for note in told[len(sentences) :])


@each_row(
    "name, damage, file",
    [
        ("mednli", row(MEDNLI, 2, sentence2=["Drawn secret"]), "mli_test_v1.jsonl row 2"),
        (
            "mednli",
            changed(MEDNLI, lambda data: data.splitlines(True)[0] + b'["Drawn secret"]'),
            "mli_test_v1.jsonl row 2",
        ),
        ("vindr_mammo", text(VINDR, "BI-RADS 1", "secret 9"), f"{VINDR} row 1"),
    ],
)
def test_a_complaint_never_quotes_a_patients_record(source, home, name, damage, file):
    folder = source(name)
    damage(folder)
    with pytest.raises(SourceError, match=file) as caught:
        prepare(f"multimedeval_{name}", Options(folder))
    assert "secret" not in str(caught.value)


@each_row(
    "name, damage, cause",
    [
        ("medqa", lost("data_clean.zip!data_clean/questions/US/train.jsonl"), "{source} holds no "),
        ("vqa_rad", row(RAD.replace("test", "train"), 5, image=None), f"{RAD[5:].replace('test', 'train')} row 5: "),
        ("pad_ufes_20", lost(*PAD_SPLITS), "{source}/split holds no test split of "),
    ],
)
def test_a_broken_training_split_costs_only_the_demonstrations(source, prepared, name, damage, cause):
    folder = source(name)
    damage(folder)
    manifest, documents, shots = prepared(name, folder)
    assert (len(documents), shots) == (16 if name == "pad_ufes_20" else 6, [])
    assert manifest.left_out[-1].startswith(f"no few-shot demonstrations: {cause.format(source=folder)}")


@each_row("name, rows, published", [("medqa", 6, 1273), ("pad_ufes_20", 16, 2298)])
def test_the_size_is_checked(source, complains, name, rows, published):
    sentence = f"the source holds {rows} rows, the evaluated set {published}"
    complains(name, source(name), sentence, "--allow-incomplete", allow_incomplete=False)
