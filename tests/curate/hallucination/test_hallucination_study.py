"""Studies of reports, and the texts that knowledge for them is retrieved from."""

import json
import sys

import pytest
from PIL import Image

from medtasks.curate.hallucination_questions import (
    PASSAGE,
    knowledge_files,
    made_study,
    planned_study,
    prompt_for,
    read_passages,
    retriever,
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


def read(path, kind):
    """The images of a study that is made of reports, and the number of others by reason."""
    folder = path.with_name("made")
    study = made_study(folder, planned_study(path, folder, kind, None, Access.CREDENTIALED))
    return list(read_images(folder).values()), study.made_with["counts"]


def test_what_a_row_has_decides_which_figure_asks(listed):
    pairs, boxes = [{"question": "Where?", "answer": "Left"}], {"liver": [1, 2, 3, 4]}
    rows = [
        {"report": "No mass.", "findings": "ignored"},
        {"report": "No mass.", "qa_pairs": pairs, "notes": "ignored"},
        {"qa_pairs": pairs, "bounding_boxes": boxes, "metadata": {"modality": "CT"}},
        {"qa_pairs": [], "bounding_boxes": {}, "metadata": {"modality": "CT"}},
    ]
    images, left_out = read(listed(*rows), StudyKind.VISUAL_CLOSED)
    assert left_out == {"it has no report, no question pairs and no bounding boxes": 1}
    figures = [prompt_for(StudyKind.VISUAL_CLOSED, image).source for image in images]
    assert figures == ["MedHEval, figure 6", "MedHEval, figure 4", "MedHEval, figure 5"]
    assert [sorted(image.context) for image in images] == [[], ["qa_pairs"], ["bounding_boxes", "metadata", "qa_pairs"]]


def test_what_cannot_be_used_is_counted(listed, tmp_path, monkeypatch):
    whole = {"report": "No mass.", "notes": "Cough."}
    rows = [{**whole, "group": 7, "licence": "CC0"}, {"report": "No mass."}, {**whole, "report": " "}]
    rows += [{**whole, "image": name} for name in ("none.png", "x" * 5000, "a\0b", "broken.png", "scan.dcm")]
    (tmp_path / "scan.dcm").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    (image,), left_out = read(listed(*rows), StudyKind.CONTEXTUAL)
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
        ([{"report": "x", "id": ""}], r"reports.jsonl row 1: its id is empty"),
        ([{"notes": "x"}], r"has nothing that knowledge_closed can be made of: it has no report \(1\)"),
        ([], "it is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(listed, rows, message):
    with pytest.raises(SourceError, match=message):
        read(listed(*rows), CLOSED)


def test_a_study_is_made_once_and_only_of_what_it_was_made_of(listed, tmp_path):
    pytest.importorskip("bm25s")
    path, folder = listed({"report": "Edema and a mass."}, {"report": "Zyzzyva."}, {}), tmp_path / "k"
    (tmp_path / "book.txt").write_text("Edema is fluid.\n\n" + "x" * 990 + "\n\nA mass may be a tumour.")

    def made(kind=StudyKind.KNOWLEDGE_OPEN, access=Access.CREDENTIALED, texts=(tmp_path / "book.txt",)):
        return made_study(folder, planned_study(path, folder, kind, None, access, texts, 2), texts)

    study = made()
    assert (study.name, study.access, study.made_with["counts"]) == ("k", "credentialed", {"it has no report": 1})
    assert read_study(folder) == study
    assert oct((folder / IMAGES).stat().st_mode & 0o777) == "0o600"
    passages = {name: sorted(image.context["passages"]) for name, image in read_images(folder).items()}
    assert passages == {"i0": ["A mass may be a tumour.", "Edema is fluid."], "i1": []}
    (tmp_path / "a.png").unlink()  # nothing is read again
    assert made() == study
    with pytest.raises(MedTasksError, match="is a study of"):
        made(CLOSED, texts=())
    with pytest.raises(MedTasksError, match="name them with --knowledge"):
        made(texts=())
    (tmp_path / "book.txt").write_text("Edema is water.")
    with pytest.raises(MedTasksError, match="was made with another --knowledge"):
        made()
    path.write_text(path.read_text().replace("mass", "edema"))
    with pytest.raises(MedTasksError, match="was made with another file of reports"):
        made()
    path.unlink()
    with pytest.raises(SourceError, match=r"there is no file .*reports\.jsonl"):
        made()


EDEMA = "Pulmonary edema is fluid in the air spaces of the lung."
FRACTURE = "A rib fracture is a break of a bone of the chest wall."


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "b.md").write_text(f"# Edema\n\n{EDEMA}\n")
    (tmp_path / "a.txt").write_text(f"{FRACTURE}\n \n{'x ' * 700}")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (EDEMA, "y" * 1500)))
    (tmp_path / "table.csv").write_text("not a text")
    return tmp_path


def test_passages_are_paragraphs_up_to_a_length(texts):
    files = knowledge_files([texts, texts / "b.md"])
    assert [file.name for file in files] == ["a.txt", "b.md", "c.jsonl"]
    passages = read_passages(files)
    assert passages[0] == FRACTURE
    assert all(0 < len(passage) <= PASSAGE for passage in passages)
    assert passages[1:3] == [("x " * 500).strip(), ("x " * 200).strip()]
    assert passages[3:5] == [f"# Edema\n{EDEMA}", EDEMA]
    assert [len(passage) for passage in passages[5:]] == [1000, 500]
    assert read_passages([texts / "c.jsonl", texts / "c.jsonl"]) == passages[4:]


def test_what_shares_words_is_found_best_first():
    pytest.importorskip("bm25s")
    passages = ["The heart.", FRACTURE, EDEMA, "Edema of the ankle.", EDEMA + " "]
    found = [EDEMA, EDEMA + " ", "Edema of the ankle."]
    for count in (3, 2, 50):
        assert retriever(passages, count)("There is pulmonary edema; the lung shows fluid.") == found[:count]
    assert [retriever(passages, 3)(text) for text in ("Zyzzyva of the and", "")] == [[], []]


def test_mistakes_are_one_sentence(texts, monkeypatch):
    for path in (texts / "table.csv", texts / "missing.txt"):
        with pytest.raises(SourceError, match=r"is no \.txt, \.md, \.jsonl file and no folder with any"):
            knowledge_files([path])
    for name, content, why in (
        ("b.md", b"\xff\xfe\x00", r"b\.md is no text in UTF-8"),
        ("b.md", b" \n\n ", "hold nothing to retrieve"),
        ("c.jsonl", b'{"title": "t"}\n', r"c\.jsonl row 1"),
    ):
        (texts / name).write_bytes(content)
        with pytest.raises(SourceError, match=why):
            read_passages([texts / name])
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[curate\]'"):
        retriever([EDEMA], 1)
