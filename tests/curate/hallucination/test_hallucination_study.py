import json
import sys
from collections import Counter

import pytest
from PIL import Image

from medtasks.curate.hallucination.hallucination_questions import (
    made_study,
    planned_study,
    prompt_for,
    read_reports,
)
from medtasks.curate.study import IMAGES, StudyKind, read_images, read_study
from medtasks.data.catalogue import Access
from medtasks.errors import MedTasksError, SourceError

from ...tables import each_row

CLOSED = StudyKind.KNOWLEDGE_CLOSED


@pytest.fixture
def listed(tmp_path):
    """Write a file of reports beside an image, one row per mapping."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])

    def write(*rows):
        path = tmp_path / "reports.jsonl"
        filled = [{"id": f"i{number}", "image": "a.png", **row} for number, row in enumerate(rows)]
        path.write_text("".join(json.dumps(row) + "\n" for row in filled))
        return path

    return write


def test_what_a_row_has_decides_which_figure_asks(listed):
    pairs, boxes = [{"question": "Where?", "answer": "Left"}], {"liver": [1, 2, 3, 4]}
    rows = [
        {"report": "No mass.", "findings": "ignored"},
        {"report": "No mass.", "qa_pairs": pairs, "notes": "ignored"},
        {"qa_pairs": pairs, "bounding_boxes": boxes, "metadata": {"modality": "CT"}},
        {"qa_pairs": [], "bounding_boxes": {}, "metadata": {"modality": "CT"}},
    ]
    images, left_out = read_reports(listed(*rows), StudyKind.VISUAL_CLOSED)
    assert left_out == {"it has no report, no question pairs and no bounding boxes": 1}
    by_figure = Counter(prompt_for(StudyKind.VISUAL_CLOSED, image).source for image in images)
    assert by_figure == {"MedHEval, figure 6": 1, "MedHEval, figure 4": 1, "MedHEval, figure 5": 1}
    assert [sorted(image.context) for image in images] == [[], ["qa_pairs"], ["bounding_boxes", "metadata", "qa_pairs"]]


def test_what_cannot_be_used_is_counted(listed, tmp_path, monkeypatch):
    whole = {"report": "No mass.", "notes": "Cough."}
    rows = [{**whole, "group": 7, "licence": "CC0"}, {"report": "No mass."}, {**whole, "report": " "}]
    rows += [{**whole, "image": name} for name in ("none.png", "x" * 5000, "a\0b", "broken.png", "scan.dcm")]
    (tmp_path / "scan.dcm").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    (image,), left_out = read_reports(listed(*rows), StudyKind.CONTEXTUAL)
    assert (image.image_id, image.group, image.licence, image.context) == ("i0", "7", "CC0", {"notes": "Cough."})
    assert left_out == {
        "it has no notes": 1,
        "it has no report": 1,
        "its image file cannot be opened": 3,
        "its image cannot be read": 1,
        "a DICOM file needs pydicom; install it with `pip install 'medtasks[dicom]'`": 1,
    }


@each_row(
    "rows, message",
    [
        ([{"report": "x"}, {"report": "y", "id": "i0"}], r"reports.jsonl row 2: it has the id of reports.jsonl row 1"),
        ([{"report": 3}], r"reports.jsonl row 1: report is a number and not a text"),
        ([{"report": "x", "metadata": {"a": "\ud800"}}], r"reports.jsonl row 1: it holds half a surrogate pair"),
        ([{"report": "x", "id": ""}], r"reports.jsonl row 1: its id is empty"),
        ([{"notes": "x"}], r"has nothing that knowledge_closed can be made of: it has no report \(1\)"),
        ([], "it is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(listed, rows, message):
    with pytest.raises(SourceError, match=message):
        read_reports(listed(*rows), CLOSED)


def test_the_same_command_goes_on_and_another_one_is_refused(listed, tmp_path):
    path, folder = listed({"report": "No mass."}, {}), tmp_path / "ours"

    def made(kind=CLOSED, access=Access.CREDENTIALED):
        return made_study(folder, planned_study(path, folder, kind, None, access))

    study = made()
    assert (study.name, study.kind, study.access) == ("ours", CLOSED, "credentialed")
    assert study.made_with["counts"] == {"it has no report": 1}
    assert read_study(folder) == study
    assert oct((folder / IMAGES).stat().st_mode & 0o777) == "0o600"
    (tmp_path / "a.png").unlink()  # nothing is read again
    assert made() == study
    with pytest.raises(MedTasksError, match="is a study of"):
        made(StudyKind.VISUAL_OPEN)
    with pytest.raises(MedTasksError, match="was made with another"):
        made(access=Access.PUBLIC)
    path.write_text(path.read_text().replace("mass", "edema"))
    with pytest.raises(MedTasksError, match="was made with another file of reports"):
        made()


def test_passages_are_kept_beside_the_report(listed, tmp_path):
    pytest.importorskip("bm25s")
    (tmp_path / "book.txt").write_text("Edema is fluid.\n\n" + "x" * 990 + "\n\nA mass may be a tumour.")
    path = listed({"report": "There is edema and a mass."}, {"report": "Zyzzyva."})
    texts = [tmp_path / "book.txt"]
    planned = planned_study(path, tmp_path / "study", StudyKind.KNOWLEDGE_OPEN, "k", Access.PUBLIC, texts, 2)
    study = made_study(tmp_path / "study", planned, texts)
    kept = {name: image.context["passages"] for name, image in read_images(tmp_path / "study").items()}
    assert sorted(kept["i0"]) == ["A mass may be a tumour.", "Edema is fluid."]
    assert kept["i1"] == []
    (tmp_path / "book.txt").write_text("Edema is water.")
    changed = planned_study(path, tmp_path / "study", StudyKind.KNOWLEDGE_OPEN, "k", Access.PUBLIC, texts, 2)
    assert changed.made_with["knowledge"] != study.made_with["knowledge"]


@each_row(
    "kind, paths, message",
    [
        (StudyKind.KNOWLEDGE_OPEN, (), "name them with --knowledge"),
        (CLOSED, ("book.txt",), "--knowledge is for knowledge_open"),
    ],
)
def test_texts_are_for_the_kind_that_retrieves(listed, tmp_path, kind, paths, message):
    with pytest.raises(MedTasksError, match=message):
        planned_study(listed({}), tmp_path / "s", kind, None, Access.PUBLIC, [tmp_path / path for path in paths])
    with pytest.raises(SourceError, match=r"there is no file .*none\.jsonl"):
        planned_study(tmp_path / "none.jsonl", tmp_path / "s", CLOSED, None, Access.PUBLIC)
