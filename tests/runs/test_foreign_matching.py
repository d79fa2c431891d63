"""Which sample a row of another kit's file answers, and when it is left out."""

import pytest

from medtasks.errors import RepliesError
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.matching import match_rows
from medtasks.runs.foreign.row_matching import (
    BY_ID,
    BY_ORDER,
    BY_PROMPT,
    BY_QUESTION_ALONE,
    NOT_HERE,
    OTHER_ID,
    OTHER_IMAGE,
    OTHER_ORDER,
    SEVERAL,
)
from medtasks.runs.recorded_replies import read_recorded
from medtasks.tasks.task_file import TaskFile

from ..tables import each_row

PARTS = ["rim", "inner rim", "tip", "bulb"]


class Asked(TaskFile):
    """A task without a file."""

    def __init__(self, **columns):
        object.__setattr__(
            self,
            "__dict__",
            {"name": "asked", "dataset": None, "base": None, "guarded_as": None},
        )


def sample(doc_id, question, options=PARTS, **columns):
    return {"doc_id": doc_id, "question": question, "options": list(options), **columns}


def matched(documents, *rows, is_id_named=False, notes=()):
    written = tuple(
        ForeignRow(number, "", **{"reply": f"R{number}", **row})
        for number, row in enumerate(rows)
    )
    return match_rows(
        ForeignFile("a kit", written, "out", is_id_named, notes=notes), documents, Asked()
    )


def replies(result, run=0):
    return {doc_id: reply.text for doc_id, reply in result.runs[run].items()}


def causes(result):
    return {
        match.row.number: match.why for match in (*result.unmatched_rows, *result.ambiguous)
    }


def prompt(question, options=PARTS, frame="Question: {}\nChoices:\n{}\nAnswer:"):
    lettered = [
        f"({letter}) {option}" for letter, option in zip("ABCDEFG", options, strict=False)
    ]
    return frame.format(question, "\n".join(lettered))


SIX = [sample(f"q-{number}", f"Where is part {number}?") for number in range(6)]


def test_a_published_id_that_contradicts_the_texts_is_not_taken():
    rows = [
        {
            "identifier": "q-1",
            "question": "Where is  PART 1?",
            "options": ("A. rim", "B. inner rim", "C. tip", "D. bulb"),
        },
        {"identifier": "q-2", "question": "Where is part 3?", "options": tuple(PARTS)},
        {"identifier": "q-4", "question": "Where is part 4?", "options": tuple(PARTS[::-1])},
        {"identifier": "q-5"},
        {"identifier": "x-0", "question": "Where is part 0?", "options": tuple(PARTS)},
    ]
    result = matched(SIX, *rows)
    assert replies(result) == {"q-0": "R4", "q-1": "R0", "q-5": "R3"}
    assert causes(result) == {1: OTHER_ID, 2: OTHER_ORDER}
    assert result.statuses["q-3"] == "missing"


def test_one_contradiction_makes_bare_numbers_no_ids_of_the_whole_file():
    documents = [
        sample(str(number), "Same?" if number < 2 else f"Where is part {number}?")
        for number in range(5)
    ]
    texts = [
        {"identifier": doc["doc_id"], "question": doc["question"], "options": tuple(PARTS)}
        for doc in documents
    ]
    assert replies(matched(documents, *texts)) == {
        str(number): f"R{number}" for number in range(5)
    }
    moved = {**texts[4], "identifier": "3"}
    result = matched(documents, *texts[:4], moved)
    assert replies(result) == {"2": "R2", "3": "R3", "4": "R4"}
    assert causes(result) == {0: SEVERAL, 1: SEVERAL}


def test_bare_numbers_without_texts_are_refused_unless_the_user_names_them():
    documents = [sample(str(number), f"Where is part {number}?") for number in range(5)]
    with pytest.raises(
        RepliesError, match=r"could be the number of any row.*--columns id=COLUMN"
    ):
        matched(documents, {"identifier": "3"})
    assert replies(
        matched(documents, {"identifier": "3"}, {"identifier": "04"}, is_id_named=True)
    ) == {
        "3": "R0",
        "4": "R1",
    }


@each_row(
    "options, shown",
    [
        (["5", "10²", "0.5"], ("5.0", "10²", "0.50")),
        (["rim", "None", "tip"], ("rim", "", "tip")),
        (["rim", "tip", "N/A"], ("rim", "tip")),
        (["A. rim", "B. tip"], ("(a) Rim", "(b) tip")),
    ],
)
def test_options_are_compared_as_texts(options, shown):
    result = matched(
        [sample("q-0", "Which?", options)], {"question": "Which?", "options": shown}
    )
    assert replies(result) == {"q-0": "R0"}
    wrong = matched(
        [sample("q-0", "Which?", options)],
        {"question": "Which?", "options": (*shown[1:], shown[0])},
    )
    assert wrong.statuses == {"q-0": "missing"}


def test_ten_squared_is_not_a_hundred_and_two():
    assert causes(
        matched([sample("q", "x?", ["10²", "7"])], {"question": "x?", "options": ("102", "7")})
    ) == {0: NOT_HERE}


def test_a_question_without_options_is_taken_if_it_is_the_only_one():
    documents = [*SIX, sample("twin", "Where is part 5?", PARTS[::-1])]
    result = matched(
        documents, {"question": "Where is part 1?"}, {"question": "Where is part 5?"}
    )
    assert replies(result) == {"q-1": "R0"}
    assert result.steps == {BY_QUESTION_ALONE: 1}
    assert causes(result) == {1: SEVERAL}
    assert any("order could not be compared" in sentence for sentence in result.sentences())


def test_prompts_are_read_within_the_frame_of_the_kit():
    """A question that contains one of ours is another question, even with the same options."""
    documents = [*SIX, sample("long", "Where is part 5? Look at the left.")]
    asked = [prompt(doc["question"]) for doc in documents]
    others = [
        prompt("Elsewhere: Where is part 2?"),
        prompt("Where is part 3? Look at the right."),
    ]
    result = matched(documents, *[{"prompt": text} for text in [*asked, *others]])
    assert replies(result) == {
        doc["doc_id"]: f"R{number}" for number, doc in enumerate(documents)
    }
    assert causes(result) == {7: NOT_HERE, 8: NOT_HERE}
    assert result.steps == {BY_PROMPT: 7}


def test_few_questions_with_another_number_of_options_are_within_the_frame():
    documents = [
        *SIX,
        *(sample(f"more-{number}", f"What is {number}?") for number in range(60)),
    ]
    documents.append(sample("two", "Where is it?", PARTS[:2]))
    frame = "One of {}.\n{{}}\n{{}}"
    rows = []
    for document in documents:
        letters = ",".join("ABCD"[: len(document["options"])])
        rows.append(
            {"prompt": prompt(document["question"], document["options"], frame.format(letters))}
        )
    assert len(replies(matched(documents, *rows))) == len(documents)


def test_prompts_with_a_context_of_their_own_have_no_frame():
    frame = "Context: study {} {{}}\n{{}}"
    rows = [
        {"prompt": prompt(doc["question"], frame=frame.format(number))}
        for number, doc in enumerate(SIX)
    ]
    assert len(replies(matched(SIX, *rows))) == 6
    swapped = prompt(SIX[0]["question"], ["inner rim", "rim", "tip", "bulb"])
    assert causes(matched(SIX, {"prompt": swapped}))[0] == OTHER_ORDER
    assert (
        causes(matched(SIX, {"prompt": prompt(SIX[0]["question"], [*PARTS[:3], "stalk"])}))[0]
        == NOT_HERE
    )


def test_the_order_of_yes_and_no_counts_where_letters_stand_for_them():
    documents = [sample("q", "Is it open?", ["yes", "no"])]
    plain = "{}\n{}\nAnswer yes or no."
    assert replies(matched(documents, {"prompt": "Is it open?\nAnswer with no or yes."})) == {
        "q": "R0"
    }
    assert replies(
        matched(documents, {"prompt": prompt("Is it open?", ["Yes", "No"], plain)})
    ) == {"q": "R0"}
    assert causes(
        matched(documents, {"prompt": prompt("Is it open?", ["No", "Yes"], plain)})
    ) == {0: OTHER_ORDER}


def test_a_question_may_follow_a_chinese_frame_directly():
    text = prompt("Where is part 2?", frame="问题：{}选项：\n{}")
    assert replies(matched(SIX, {"prompt": text})) == {"q-2": "R0"}


def test_the_image_decides_between_questions_with_the_same_texts():
    documents = [sample(f"q-{n}", "Where?", image_file=f"sub/scan_{n}.png") for n in range(4)]
    rows = [
        {"question": "Where?", "options": tuple(PARTS), "image_names": (f"scan_{n}.jpg",)}
        for n in (2, 0, 3)
    ]
    assert replies(matched(documents, *rows)) == {"q-0": "R1", "q-2": "R0", "q-3": "R2"}
    assert matched(
        documents, {"question": "Where?", "options": tuple(PARTS)}
    ).statuses == dict.fromkeys(("q-0", "q-1", "q-2", "q-3"), "ambiguous")


def test_a_row_on_another_image_is_another_question_where_files_are_named_alike():
    documents = [{**doc, "image_file": f"{doc['doc_id']}.png"} for doc in SIX]
    rows = [
        {"question": doc["question"], "image_names": (f"{doc['doc_id']}.png",)}
        for doc in SIX[:4]
    ]
    other = {"question": "Where is part 5?", "image_names": ("q-77.png",)}
    assert causes(matched(documents, *rows, other)) == {4: OTHER_IMAGE}
    renamed = [{**row, "image_names": (f"{number}.png",)} for number, row in enumerate(rows)]
    assert len(replies(matched(documents, *renamed, other))) == 5


def test_order_decides_only_if_every_row_of_a_whole_file_agrees():
    questions = ["Is C open?", "Is A open?", "Is A open?", "Is D open?", "Is B open?"]
    documents = [
        sample(f"q-{number}", question, ()) for number, question in enumerate(questions)
    ]
    rows = [{"question": question} for question in questions]
    result = matched(documents, *rows)
    assert replies(result) == {f"q-{number}": f"R{number}" for number in range(5)}
    assert result.steps[BY_ORDER] == 2
    assert causes(matched(documents, *rows[:4])) == {1: SEVERAL, 2: SEVERAL}
    assert causes(matched(documents, *rows[3:], *rows[:3])) == {3: SEVERAL, 4: SEVERAL}
    in_order = sorted(documents, key=lambda document: document["question"])
    assert set(
        causes(matched(in_order, *({"question": doc["question"]} for doc in in_order))).values()
    ) == {SEVERAL}


@each_row(
    "pattern, is_telling",
    [
        ("BA" * 3, False),
        ("BA" * 50, False),
        ("B" * 50 + "A" * 50, False),
        ("BADCADBBCDACBDDABCBAADCB", True),
    ],
)
def test_order_tells_nothing_where_questions_come_again_in_one_pattern(pattern, is_telling):
    """Such as the same questions of each image, in the same order."""
    documents = [
        sample(f"q-{number}", f"Is {part} open?", ()) for number, part in enumerate(pattern)
    ]
    result = matched(documents, *({"question": document["question"]} for document in documents))
    assert bool(result.runs[0]) == is_telling
    assert (len(causes(result)) == len(pattern)) != is_telling


def test_rows_of_one_sample():
    asked = {"question": "Where is part 1?", "options": tuple(PARTS)}
    same = matched(SIX, {**asked, "reply": "a\r\nb"}, {**asked, "reply": "a\nb"})
    assert (replies(same), same.duplicates) == ({"q-1": "a\r\nb"}, 1)
    different = matched(SIX, {**asked, "reply": "A"}, {**asked, "reply": ""})
    assert (different.runs[0], different.statuses["q-1"]) == ({}, "ambiguous")
    retried = matched(SIX, {**asked, "reply": None}, {**asked, "reply": "A"})
    assert (replies(retried), retried.statuses["q-1"]) == ({"q-1": "A"}, "matched")
    failed = matched(SIX, {**asked, "reply": None})
    assert (failed.runs[0]["q-1"].is_failure, failed.statuses["q-1"]) == (True, "failed")
    runs = matched(
        SIX, {**asked, "reply": "A", "repeat": 0}, {**asked, "reply": "B", "repeat": 1}
    )
    assert [replies(runs, run) for run in (0, 1)] == [{"q-1": "A"}, {"q-1": "B"}]
    thought = matched(SIX, {**asked, "reply": "A", "reasoning": "so", "is_cut": True})
    assert (thought.runs[0]["q-1"].reasoning, thought.runs[0]["q-1"].cut) == ("so", True)


def test_an_id_that_is_published_twice():
    """The texts decide between the samples that share it."""
    documents = [sample("q", "Where?"), sample("q (2)", "When?"), sample("p (2)", "Why?")]
    rows = [
        {"identifier": "q", "question": text, "options": tuple(PARTS)}
        for text in ("When?", "Where?")
    ]
    result = matched(documents, *rows, {"identifier": "p", "question": "Who?"})
    assert (replies(result), result.steps) == ({"q": "R1", "q (2)": "R0"}, {BY_ID: 2})
    assert causes(matched(documents, {"identifier": "q"})) == {0: SEVERAL}


def test_text_of_credentialed_data_is_hashed():
    documents = [{**doc, "dataset": "multimedeval_mednli"} for doc in SIX]
    result = matched(
        documents, {"question": "Secret?"}, {"question": "Where is part 1?", "reply": "A"}
    )
    described = " ".join(result.sentences())
    assert "row 0 (sha256 " in described
    assert "Secret" not in described


def test_a_file_of_another_task_is_refused_with_what_it_shows(tmp_path):
    file = tmp_path / "other.csv"
    file.write_text("question,prediction\nWho?,A\nWhen?,B\nWhere is part 1?,C\n")
    with pytest.raises(RepliesError) as refused:
        read_recorded(Asked(), SIX, [file])
    assert "answers another task than 'asked'" in str(refused.value)
    assert "no question of this task (2): row 0 (Who?), row 1 (When?)" in str(refused.value)
