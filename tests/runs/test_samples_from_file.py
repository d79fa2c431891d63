"""Samples of a single-choice task from a file that holds options and gold: documents, ids, scores and refusals."""

import json
from dataclasses import replace

import pytest

from medtasks.errors import MedTasksError, RepliesError
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.matching import match_rows
from medtasks.runs.foreign.recognition import read_foreign
from medtasks.runs.foreign.samples_from_file import file_provenance, samples_from_file
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_file

from ..tables import each_row

PMC = "medevalkit_pmc_vqa"
OPTIONS = (" A:left ", " B: right")


def row(number, reply="A", **fields):
    columns = {"prompt": f"What is {number}?", "options": OPTIONS, "answer": "A", **fields}
    return ForeignRow(number, f"results.json, entry {number + 1}", reply, **columns)


def read(*rows, task=PMC):
    """Documents, and what was matched."""
    chosen = task_file(task)
    documents, file = samples_from_file(ForeignFile("MedEvalKit", rows, "response"), chosen)
    return documents, match_rows(file, documents, chosen)


def test_score_is_that_of_the_kit_s_own_rule(tmp_path):
    """As MedEvalKit counts: a letter, twice the most similar line, another letter; a failure is none of them."""
    replies = ("B", "b: Right", "lef", "B", None)
    golds = ("B", "B", "A", "A", "A")
    path = tmp_path / "PMC_VQA" / "results.json"
    path.parent.mkdir()
    lines = [
        {
            "prompt": f"Q{number}",
            "answer": gold,
            "choices": list(OPTIONS),
            "response": reply,
            "correct": False,
        }
        for number, (gold, reply) in enumerate(zip(golds, replies, strict=True))
    ]
    path.write_text(json.dumps(lines))
    task = task_file(PMC)
    documents, file = samples_from_file(read_foreign([path]), task)
    matched = match_rows(file, documents, task)
    rows = score_replies(task, documents, matched.runs[0])
    published = rows["reference"].estimates
    assert [published[name].value for name in ("accuracy", "fallback_rate")] == [0.75, 0.5]
    assert (rows["reference"].counts.scored, rows["reference"].counts.failed) == (4, 1)
    assert rows["robust"].estimates["accuracy"].value == 0.5
    sentences = list(matched.sentences())
    source = "Options and gold come from this file: the data of 'medevalkit_pmc_vqa' are not prepared here, so that "
    assert f"{source}neither was compared with them." in sentences
    assert (
        "The file names no images, so that intervals take each sample for independent."
        in sentences
    )
    facts = file_provenance(file, documents, task)
    assert (facts["complete"], facts["prepared"], facts["rows"]) == (False, False, 5)


def test_documents():
    (document,), _ = read(
        row(
            0,
            question="Which side?",
            prompt="Which side? A:left B:right",
            image_names=("a.png",),
        )
    )
    assert document["question"] == "Which side?"
    assert (document["options"], document["option_lines"]) == (["left", "right"], list(OPTIONS))
    assert (document["answer"], document["image_id"], document["dataset"]) == (
        "A",
        "a.png",
        PMC,
    )


@each_row(
    "gold, options, letters",
    [
        (("B", "A"), OPTIONS, ["B", "A"]),
        (("right", "left"), OPTIONS, ["B", "A"]),
        (("2", "0"), ("10", "20", "30"), ["C", "A"]),
        (("20", "10"), ("10", "20", "30"), ["B", "A"]),
    ],
)
def test_gold_as_letter_text_or_number(gold, options, letters):
    documents, _ = read(
        *(row(number, answer=answer, options=options) for number, answer in enumerate(gold))
    )
    assert [document["answer"] for document in documents] == letters


TWICE = [row(0, identifier="q1"), row(1, identifier="q1", prompt="What is 0?")]


def test_rows_of_one_id_are_one_sample():
    documents, matched = read(*TWICE)
    assert (len(documents), matched.duplicates, matched.counts["matched"]) == (1, 1, 1)


def test_two_replies_to_one_id_are_ambiguous():
    documents, matched = read(TWICE[0], replace(TWICE[1], reply="B"))

    assert (len(documents), matched.counts["matched"], matched.counts["ambiguous"]) == (1, 0, 2)


def test_rows_without_an_id_are_samples_of_their_own():
    documents, matched = read(row(0), row(1, "B", prompt="What is 0?"), row(2))
    assert (len(documents), matched.counts["matched"], matched.duplicates) == (3, 3, 0)
    alike = "Samples with the question and the options of another one, which count as samples of their own: 2."
    assert alike in list(matched.sentences())


def test_runs_of_one_question():
    documents, matched = read(
        *(row(run, reply, prompt="What?", repeat=run) for run, reply in enumerate("AB"))
    )
    assert len(documents) == 1
    assert [run[documents[0]["doc_id"]].text for run in matched.runs] == ["A", "B"]


@each_row(
    "rows, task, fault",
    [
        (
            [row(0), row(1, answer=None)],
            PMC,
            "1 of 2 questions lack an option, .* such as 'row 1'",
        ),
        ([row(0), row(1, options=None)], PMC, "1 of 2 questions lack"),
        ([row(0, options=("left", ""))], PMC, "1 of 1 questions lack"),
        ([row(0, answer="C")], PMC, "1 of 1 questions lack"),
        (
            [row(0, identifier="q"), row(1, identifier="q")],
            PMC,
            "entry 2: 'q' has another question",
        ),
        ([row(0)], "medevalkit_vqa_rad", "only questions for one option"),
        ([row(0)], "mediconfusion", "only questions for one option"),
        ([row(0)], "medevalkit_pmc_vqa_nota", "only questions for one option"),
    ],
)
def test_what_cannot_stand_in_for_the_data(rows, task, fault):
    with pytest.raises(RepliesError, match=fault):
        read(*rows, task=task)


def test_gold_that_can_be_read_in_two_ways():
    with pytest.raises(
        MedTasksError, match="can be read as option numbers from 0 or as option numbers from 1"
    ):
        read(row(0, answer="1", options=("left", "right", "both")))
