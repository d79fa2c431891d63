"""Questions that an LLM drafts on reports: reading them, their rules, and the studies and texts they are asked of."""

import json
import re
import sys
from collections import Counter

import pytest
from PIL import Image

from medtasks.curate.drafts import DraftOutcome
from medtasks.curate.hallucination_questions import (
    DraftedQuestion,
    ReportQuestion,
    TypedQuestion,
    YesNoQuestion,
    drafts_in,
    prompt_for,
)
from medtasks.curate.report_studies import (
    PASSAGE,
    knowledge_files,
    made_study,
    planned_study,
    read_passages,
    retriever,
)
from medtasks.curate.study import IMAGES, StudyKind, read_images, read_study
from medtasks.data.catalogue import Access
from medtasks.data.sources.medheval_sets import BINARY, MULTI_CHOICE
from medtasks.errors import MedTasksError, SourceError

from ...tables import each_row, tables_of

TABLES = tables_of(__file__)

MASS = {"question": "Is there a mass?", "answer": "No"}
TYPED = {**MASS, "type": "type_3", "ground_truth_type": BINARY, "choices": ""}
STRUCTURED = {"anatomy": ["lung"], "measurement": [], "symptom": ["opacity"]}
EMPTY = {aspect: [] for aspect in STRUCTURED}
LISTED = {
    "question": "List your findings.",
    "answer": "The lung is opaque.",
    "Structured_Answer": STRUCTURED,
}


def read(schema, reply, banned=None, image="i"):
    drafts = drafts_in(schema, image, banned, json.dumps(reply))
    return drafts and drafts["drafts"]


@each_row("reply", TABLES["json_is_found_wherever_it_stands"])
def test_json_is_found_wherever_it_stands(reply):
    (draft,) = drafts_in(YesNoQuestion, "i", None, reply)["drafts"]
    assert (draft.question, draft.options, draft.answers) == (
        MASS["question"],
        ("Yes", "No"),
        ("B",),
    )


@each_row(
    "reply",
    [
        *(
            "",
            "No.",
            "[]",
            "{}",
            "null",
            "3",
            '"text"',
            "[[]]",
            "[" * 100_000,
            "1" * 5000,
            "```" + 100_000 * "\n",
        ),
        json.dumps([MASS, {"question": "Is there a mass?"}]),
        *(json.dumps([{**MASS, "answer": answer}]) for answer in ("", " ", True, "\ud800")),
        json.dumps([{**MASS, "question": "x" * 10_001}]),  # a model that broke
        json.dumps([MASS])[:-4],
    ],
)
def test_any_other_form_is_none(reply):
    assert drafts_in(YesNoQuestion, "i", None, reply) is None


def test_types_choices_and_components():
    explained = {
        "type": "type_1: Anatomical Hallucination",
        "ground_truth_type": MULTI_CHOICE,
        "choices": None,
    }
    for changes, hallucination in (({}, "symptom"), (explained, "anatomy")):
        assert read(TypedQuestion, [TYPED | changes])[0].hallucination == hallucination
    broken = [{"type": "type_5"}, {"type": "type_12"}, {"ground_truth_type": "yes or no"}]
    broken += [
        {"choices": choices} for choices in (["CT"], "\ud800", "A. x" + 10_000 * " " + "y")
    ]
    assert [read(TypedQuestion, [TYPED | changes]) for changes in broken] == [None] * 6
    (listed,) = read(ReportQuestion, LISTED)
    assert listed.components == {
        "anatomy": ("lung",),
        "measurement": (),
        "symptom": ("opacity",),
    }
    missing = {name: STRUCTURED[name] for name in ("anatomy", "symptom")}
    assert read(ReportQuestion, {**LISTED, "Structured_Answer": missing}) is None
    assert read(DraftedQuestion, LISTED) is None


# ---- rules for drafts ----

BANNED = re.compile(r"\b(?:report)s?\b")
FORBIDDEN = "it says '{}', which its prompt forbids"


def choice(
    answer, choices="A. CT, B. MRI, C. X-ray", question="Which modality?", kind="multi-choice"
):
    facts = {
        "question": question,
        "answer": answer,
        "choices": choices,
        "ground_truth_type": kind,
    }
    return {"type": "type_4", **facts}


def drafted(*questions):
    schema = TypedQuestion if "type" in questions[0] else DraftedQuestion
    return read(schema, questions, BANNED)


def test_the_right_option_is_known_wherever_it_stands():
    for answer, choices in (
        ("MRI", "A. CT, B. MRI"),
        ("(B)", "A: CT; B: MRI"),
        ("It is an MRI.", "A, CT; B, MRI"),
    ):
        (draft,) = drafted(choice(answer, choices))
        assert (draft.outcome, draft.reason, draft.hallucination) == (
            DraftOutcome.DRAFTED,
            "",
            "technique",
        )
        assert sorted(draft.options) == ["CT", "MRI"]
        assert draft.options[ord(draft.answers[0]) - ord("A")] == "MRI"


def test_the_right_option_stands_everywhere_about_equally_often_unless_options_speak_of_each_other():
    drafts = [
        read(TypedQuestion, [choice("A. CT")], image=f"image {number}")[0]
        for number in range(300)
    ]
    letters = Counter(draft.answers[0] for draft in drafts)
    assert (letters.keys(), min(letters.values()) > 70) == ({"A", "B", "C"}, True)
    assert read(TypedQuestion, [choice("A. CT")], image="image 7")[0] == drafts[7]
    for last in ("None of the above", "Both A and B", "A and B", "All of these: all of them"):
        questions = [choice("B", f"A. CT, B. MRI, C. {last}")]
        drafts = [read(TypedQuestion, questions, image=str(number))[0] for number in range(8)]
        assert {draft.options for draft in drafts} == {("CT", "MRI", last)}


@each_row(
    "question, reason",
    [
        (choice("Ultrasound"), "its answer names no option"),
        (choice("CT and MRI"), "its answer names several options"),
        (choice("A: MRI"), "its answer contradicts itself"),
        (choice("A", "A, B, C"), "it has fewer than two options that can be told apart"),
        (choice("C", "A. CT, B. C.T., C. MRI, D. mri."), "two of its options are equal"),
        (
            choice("Unclear", "", "Is there a mass?", "binary"),
            "its answer is neither yes nor no",
        ),
        (
            {"question": "What does the report say?", "answer": "Edema"},
            FORBIDDEN.format("report"),
        ),
        (choice("CT", "A. CT, B. the report"), FORBIDDEN.format("report")),
    ],
)
def test_what_is_no_question_is_rejected_and_says_why(question, reason):
    (draft,) = drafted(question)
    assert (draft.outcome, draft.reason) == (DraftOutcome.REJECTED, reason)
    assert draft.answers == (question["answer"],) or "forbids" in reason


def test_yes_and_no():
    (unclear,) = read(YesNoQuestion, {**MASS, "answer": "Equivocal"})
    assert (unclear.reason, unclear.answers) == (
        "its answer is neither yes nor no",
        ("Equivocal",),
    )
    plain = {"question": "Is there a mass?", "answer": "No, the lung is clear."}
    typed = [
        choice("yes", "", "Is there edema?", "binary"),
        choice("B. Yes", "A. No, B. Yes", "Is there air?"),
    ]
    drafts = [*read(YesNoQuestion, plain), *drafted(*typed)]
    assert [draft.reason for draft in drafts] == [""] * 3
    assert {draft.options for draft in drafts} == {("Yes", "No")}
    assert [draft.answers for draft in drafts] == [("B",), ("A",), ("A",)]
    assert [draft.item_id for draft in drafts] == ["i/1", "i/1", "i/2"]
    assert [draft.hallucination for draft in drafts] == [None, "technique", "technique"]


def test_the_same_question_is_rejected_the_second_time_and_components_are_kept():
    texts = ("What is edema?", "what is  Edema", "What is air?")
    twice = [{"question": text, "answer": "Fluid"} for text in texts]
    assert [draft.reason for draft in drafted(*twice)] == [
        "",
        "the same question of the same image",
        "",
    ]
    full, empty = (
        read(ReportQuestion, {**LISTED, "Structured_Answer": of})[0]
        for of in (STRUCTURED, EMPTY)
    )
    assert (full.outcome, full.options, full.answers) == (
        DraftOutcome.DRAFTED,
        (),
        (LISTED["answer"],),
    )
    assert (empty.outcome, empty.reason) == (DraftOutcome.REJECTED, "it names no component")


CLOSED = StudyKind.KNOWLEDGE_CLOSED


@pytest.fixture
def listed(tmp_path):
    """Write a file of reports beside an image, one row per mapping."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])

    def write(*rows):
        path = tmp_path / "reports.jsonl"
        filled = [
            {"id": f"i{number}", "image": "a.png", **row} for number, row in enumerate(rows)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in filled))
        return path

    return write


def images_made_of(path, kind):
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
    images, left_out = images_made_of(listed(*rows), StudyKind.VISUAL_CLOSED)
    assert left_out == {"it has no report, no question pairs and no bounding boxes": 1}
    figures = [prompt_for(StudyKind.VISUAL_CLOSED, image).source for image in images]
    assert figures == ["MedHEval, figure 6", "MedHEval, figure 4", "MedHEval, figure 5"]
    assert [sorted(image.context) for image in images] == [
        [],
        ["qa_pairs"],
        ["bounding_boxes", "metadata", "qa_pairs"],
    ]


def test_what_cannot_be_used_is_counted(listed, tmp_path, monkeypatch):
    whole = {"report": "No mass.", "notes": "Cough."}
    rows = [
        {**whole, "group": 7, "licence": "CC0"},
        {"report": "No mass."},
        {**whole, "report": " "},
    ]
    rows += [
        {**whole, "image": name}
        for name in ("none.png", "x" * 5000, "a\0b", "broken.png", "scan.dcm")
    ]
    (tmp_path / "scan.dcm").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    (image,), left_out = images_made_of(listed(*rows), StudyKind.CONTEXTUAL)
    assert (image.image_id, image.group, image.licence, image.context) == (
        "i0",
        "7",
        "CC0",
        {"notes": "Cough."},
    )
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
        (
            [{"report": "x"}, {"report": "y", "id": "i0"}],
            r"reports.jsonl row 2: it has the id of reports.jsonl row 1",
        ),
        ([{"report": 3}], r"reports.jsonl row 1: report is a number and not a text"),
        ([{"report": "x", "id": ""}], r"reports.jsonl row 1: its id is empty"),
        (
            [{"notes": "x"}],
            r"has nothing that knowledge_closed can be made of: it has no report \(1\)",
        ),
        ([], "it is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(listed, rows, message):
    with pytest.raises(SourceError, match=message):
        images_made_of(listed(*rows), CLOSED)


def test_a_study_is_made_once_and_only_of_what_it_was_made_of(listed, tmp_path):
    pytest.importorskip("bm25s")
    path, folder = (
        listed({"report": "Edema and a mass."}, {"report": "Zyzzyva."}, {}),
        tmp_path / "k",
    )
    (tmp_path / "book.txt").write_text(
        "Edema is fluid.\n\n" + "x" * 990 + "\n\nA mass may be a tumour."
    )

    def made(
        kind=StudyKind.KNOWLEDGE_OPEN,
        access=Access.CREDENTIALED,
        texts=(tmp_path / "book.txt",),
    ):
        return made_study(
            folder, planned_study(path, folder, kind, None, access, texts, 2), texts
        )

    study = made()
    assert (study.name, study.access, study.made_with["counts"]) == (
        "k",
        "credentialed",
        {"it has no report": 1},
    )
    assert read_study(folder) == study
    assert oct((folder / IMAGES).stat().st_mode & 0o777) == "0o600"
    passages = {
        name: sorted(image.context["passages"]) for name, image in read_images(folder).items()
    }
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
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in (EDEMA, "y" * 1500))
    )
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
        assert (
            retriever(passages, count)("There is pulmonary edema; the lung shows fluid.")
            == found[:count]
        )
    assert [retriever(passages, 3)(text) for text in ("Zyzzyva of the and", "")] == [[], []]


def test_knowledge_that_cannot_be_read(tmp_path):
    with pytest.raises(SourceError, match=r"is no \.\w+, .* file and no folder with any"):
        knowledge_files([tmp_path])
    for content, complaint in (
        (b"\xff", "is no text in UTF-8"),
        (b" \n", "hold nothing to retrieve"),
    ):
        (tmp_path / "a.txt").write_bytes(content)
        with pytest.raises(SourceError, match=complaint):
            read_passages(knowledge_files([tmp_path]))
