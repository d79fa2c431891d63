"""MedEvalKit's choice sets: draws, published answers that are no option, rows without a number, baselines, a file."""

import json
import math
import random

import pytest

from medtasks.data.samples import Sample
from medtasks.data.variants import rotated
from medtasks.errors import MedTasksError
from medtasks.families import submission
from medtasks.families.choice import KIT_CHOICE as FAMILY
from medtasks.families.choice import KIT_LIKELIHOODS
from medtasks.families.family import Reply, Rule
from medtasks.families.rotations import ROTATED_CHOICE
from medtasks.home import home
from medtasks.metrics.metric import evaluate
from medtasks.scores.baselines import baselines
from medtasks.tasks import own_documents

from ..task_families import FAMILIES

OPTIONS = ["liver", "spleen", "heart"]
UNREAD = "no idea"


def question(number, subject="Pharmacy", **columns):
    doc_id = f"validation_{subject}_{number}"
    known = {
        "options": OPTIONS,
        "answer": "A",
        "gold": "A",
        "image_id": doc_id,
        "question_type": "multiple-choice",
    }
    return {"doc_id": doc_id, "dataset": "mediconfusion", **known, **columns}


OPEN = {"options": [], "answer": None, "gold": "bile", "question_type": "open"}


def scores_of(documents, replies, rule):
    given = map(Reply.of_text, replies)
    return [
        FAMILY.score(Sample(one), reply, Rule(rule))
        for one, reply in zip(documents, given, strict=True)
    ]


def values(family, scores):
    return {name: one.value for name, one in evaluate(family.metrics, scores).items()}


def test_draws_are_made_in_the_order_of_the_questions():
    documents = [
        question(n, subject)
        for subject in ("Basic_Medical_Science", "Pharmacy")
        for n in (1, 2, 10)
    ]
    scores = scores_of(
        documents, [UNREAD, "A", UNREAD, UNREAD, None, UNREAD], "medevalkit_mmmu"
    )
    chance = random.Random(42)  # MedEvalKit's seed
    expected = {place: chance.choice("ABC") for place in (0, 2, 3, 5)}
    settled = FAMILY.final_scores(scores)
    assert [one["value"] for one in settled] == [
        expected.get(0),
        "A",
        expected[2],
        expected[3],
        None,
        expected[5],
    ]
    assert FAMILY.final_scores(settled) is settled
    without_options = scores_of(
        [question(1, options=[]), question(2)], [UNREAD, "A"], "medevalkit_mmmu"
    )
    assert values(FAMILY, without_options)["accuracy"] == 0.5  # nothing is drawn
    found = values(FAMILY, scores)
    assert found["accuracy"] == (1 + sum(one == "A" for one in expected.values())) / 5
    assert (found["fallback_rate"], found["invalid_rate"], found["failed_samples"]) == (
        4 / 5,
        4 / 5,
        1,
    )
    # Ranks have every other sample; what the harness gathers is in another order.
    for gathered in (scores[::-1], [*scores[::2], *scores[1::2]], settled):
        assert values(FAMILY, gathered) == found
    ids = [(one["sample"], one["sample"]) for one in scores]
    singles = FAMILY.sample_values(FAMILY.metric("accuracy"), settled, ids)
    assert sum(value for _, value in singles.values()) / 5 == found["accuracy"]


def test_a_published_answer_that_is_no_option_is_never_right_but_in_words():
    lines = [f"{one}. {text}" for one, text in zip("ABC", OPTIONS, strict=True)]
    near = question(1, options=OPTIONS, option_lines=lines, answer="B", gold="spleen ")
    none = question(2, option_lines=lines, answer=None, gold="kidney")
    twice = question(3, options=["liver", "spleen", "liver"], answer="A", gold="liver")
    replies = ["B", "kidney", "C"]
    reference = scores_of([near, none, twice], replies, "medevalkit_tagged_choice")
    assert [one["target"] == one["value"] for one in reference] == [False, True, True]
    assert [one["fallback"] for one in reference] == [False, False, False]
    assert not any(text in repr(one) for one in reference for text in ("spleen", "kidney"))
    fixed = scores_of([near, none, twice], replies, "medevalkit_tagged_choice_fixed")
    assert [(one["target"], one["value"]) for one in fixed] == [
        ("B", "B"),
        (None, "A"),
        ("A", "C"),
    ]
    assert values(FAMILY, fixed)["accuracy"] == 1 / 2
    warning = FAMILY.metric("accuracy").warning
    assert (
        "1 of 3 questions have no target under rule 'medevalkit_tagged_choice_fixed'"
        in warning(fixed)
    )
    assert warning(reference) == ""


def test_a_text_that_looks_like_a_letter_is_the_option_that_it_equals():
    """OmniMedVQA's answers are texts, of which MedEvalKit takes the last equal option; other sets' are letters."""
    twice = question(
        1, options=["A", "B", "x", "B"], answer="B", gold="B", flags=["repeated_gold"]
    )
    (known,) = scores_of([twice], ["D"], "medevalkit_tagged_choice")
    assert (known["target"], known["value"]) == ("D", "D")
    no_letter = question(
        2,
        options=["Green", "Red"],
        option_lines=["A.Green", "B.Red"],
        answer=None,
        gold="Green",
    )
    (none,) = scores_of([no_letter], ["A"], "medevalkit_choice")
    assert none["target"] != none["value"]


def test_a_row_without_modality_type_stops_the_published_code_alone():
    documents = [question(1), question(2, flags=["no_modality_type"])]
    for ending, stops in (("", True), ("_release", True), ("_fixed", False)):
        scores = scores_of(documents, ["A", "A"], f"medevalkit_tagged_choice{ending}")
        found = values(FAMILY, scores)
        assert math.isnan(found["accuracy"]) == math.isnan(found["invalid_rate"]) == stops
        assert found["scored_samples"] == 2
        warning = FAMILY.metric("accuracy").warning(scores)
        assert ("validation_Pharmacy_2" in warning) == ("KeyError" in warning) == stops
    robust = values(FAMILY, scores_of(documents, ["A", "B"], "robust_kit_choice"))
    assert (robust["accuracy"], math.isnan(robust["fallback_rate"])) == (0.5, True)


def test_open_questions_are_right_where_the_authors_rule_reads_them():
    open_question = question(1, **OPEN)
    for rule, right in (
        ("medevalkit_mmmu", False),
        ("medevalkit_mmmu_fixed", True),
        ("robust_mmmu", True),
    ):
        (score,) = scores_of([open_question], ["The answer is Bile."], rule)
        assert (score["target"] == score["value"]) == right
    (thought,) = scores_of([open_question], ["<think>bile?</think>It is lymph"], "robust_mmmu")
    assert thought["target"] != thought["value"]


def test_baselines_pass_over_questions_without_answer_or_options():
    documents = [
        question(n, **columns)
        for n, columns in enumerate([{}, {}, {"answer": "B", "gold": "B"}, OPEN])
    ]
    documents.append(question(5, answer=None, gold="kidney"))
    task = FAMILIES["kit_choice"].task("medevalkit_choice_fixed")
    found = {one.name: one.scores["rule"] for one in baselines(task, documents)}
    assert set(found) == {
        "always liver",
        "always spleen",
        "always heart",
        "most frequent answer",
        "random answer",
    }
    assert (
        found["most frequent answer"]["accuracy"] == found["always liver"]["accuracy"] == 2 / 3
    )
    assert found["random answer"] == {"accuracy": 3 / 3 / 4, "invalid_rate": 0.0}


def test_questions_without_options_have_no_score_by_likelihood():
    documents = [question(1), question(2), question(3, **OPEN)]
    losses = [(1.0, 2.0, 3.0), (2.0, 1.0, 3.0), (0.0,)]
    rows = zip(documents, losses, strict=True)
    scores = [
        KIT_LIKELIHOODS.score(Sample(one), Reply(losses=given), Rule("untied"))
        for one, given in rows
    ]
    assert values(KIT_LIKELIHOODS, scores) == {
        "accuracy": 0.5,
        "invalid_rate": 0.0,
        "scored_samples": 2,
        "failed_samples": 0,
    }
    assert KIT_LIKELIHOODS.expected_by_chance(list(map(Sample, documents)))[
        "accuracy"
    ] == pytest.approx(1 / 3)


def test_answers_may_be_nothing_but_no_other_letter():
    config = {"process_results": "medtasks.hooks.kit_choice.process_results"}
    columns = {"options": [OPTIONS, []], "answer": ["C", None]}
    own_documents.check(config, columns, list(columns), "the file", ["row 1", "row 2"])
    with pytest.raises(
        MedTasksError,
        match=r"row 1: 'answer' is 'D', and .* the letter of one of the options, or nothing",
    ):
        own_documents.check(
            config,
            {**columns, "answer": ["D", None]},
            list(columns),
            "the file",
            ["row 1", "row 2"],
        )


def test_the_submission_is_what_the_authors_evaluator_reads(monkeypatch):
    documents = [question(1), question(2), question(3), question(4, **{**OPEN, "gold": None})]
    monkeypatch.setattr(submission, "load_documents", lambda _: documents)
    replies = ["(B)", UNREAD, None, "<think>lymph?</think>It is **bile**"]
    given = zip(documents, map(Reply.of_text, replies), strict=True)
    scores = [
        submission.ANSWERS_TO_SUBMIT.score(Sample(one), reply, Rule("robust_mmmu"))
        for one, reply in given
    ]
    found = values(submission.ANSWERS_TO_SUBMIT, scores[::-1])
    (path,) = (home() / "submissions" / "mediconfusion").glob("*.json")
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "validation_Pharmacy_1": "B",
        "validation_Pharmacy_2": "",
        "validation_Pharmacy_3": "",
        "validation_Pharmacy_4": "It is bile",
    }
    assert (found["submission_rows"], found["failed_samples"], found["invalid_rate"]) == (
        4,
        1,
        pytest.approx(1 / 3),
    )


def test_rotations_have_no_number_where_the_published_code_stops():
    question = {"options": ["liver", "spleen"], "answer": "A", "image_id": "1", "doc_id": "1"}
    for flags, expected in (["no_modality_type"], math.isnan), ([], lambda value: value == 1.0):
        asked = rotated([{**question, "flags": flags}])
        given = [Reply(text=document["answer"]) for document in asked]
        row = Rule("medevalkit_tagged_choice")
        scores = [
            ROTATED_CHOICE.score(Sample(one), reply, row)
            for one, reply in zip(asked, given, strict=True)
        ]
        assert expected(evaluate(ROTATED_CHOICE.metrics, scores)["mean_accuracy"].value)
