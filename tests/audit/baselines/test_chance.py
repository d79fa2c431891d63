"""The expectation of guessing against the mean over all possible guesses, through the tasks' own hooks."""

import itertools
import math

import pytest
from medtasks.audit.baselines.chance import expected_scores

from medtasks.audit.scoring import samples_of
from medtasks.data.variants import rotated
from medtasks.families.family import Reply
from medtasks.harness.task_files import task_file

PAIRED = ("set_accuracy", "individual_accuracy", "confusion")


def pair(number, options=2, answers="AB"):
    return [
        {
            "doc_id": f"{number}/{position}",
            "pair_id": str(number),
            "position": position,
            "image_id": f"{number}-{position}",
            "options": ["x", "y", "z"][:options],
            "answer": answers[position - 1],
            "categories": ["Chest"],
        }
        for position in (1, 2)
    ]


def choice(number, options, answer, **further):
    texts = ["red", "green", "blue", "grey"][:options]
    return {"doc_id": str(number), "image_id": f"i{number}", "options": texts, "answer": answer, **further}


def of_every_guess(task, documents, say=lambda document, index: "ABCD"[index]):
    """The mean of every metric over all combinations of options."""
    found = {}
    for guesses in itertools.product(*(range(len(document["options"])) for document in documents)):
        replies = [Reply(text=say(d, index)) for d, index in zip(documents, guesses, strict=True)]
        samples = samples_of(task, "robust", documents, replies)
        for entry in task.metric_list.resolve():
            if not entry["metric"].endswith("_stderr"):
                value = entry["aggregation"]([sample[entry["metric"]] for sample in samples])
                found.setdefault(entry["metric"], []).append(float(value))
    return {metric: sum(values) / len(values) for metric, values in found.items()}


def check(task, documents, *metrics, **options):
    every, expected = of_every_guess(task_file(task), documents, **options), expected_scores(documents)
    assert set(expected) == {*metrics, "invalid_rate"}
    assert {name: every[name] for name in expected} == pytest.approx(expected)


def test_pairs():
    check("mediconfusion", [*pair(1), *pair(2)], *PAIRED)
    incomplete = [*pair(1), pair(2)[0]]
    check("mediconfusion", incomplete, *PAIRED)
    check("mediconfusion", pair(1)[:1], "individual_accuracy")


def test_pairs_with_three_options():
    assert expected_scores(pair(1, options=3)) == pytest.approx(
        {"invalid_rate": 0, "individual_accuracy": 1 / 3, "set_accuracy": 1 / 9, "confusion": 1 / 3}
    )


def test_pairs_whose_questions_differ_in_their_options():
    documents = [pair(1)[0], pair(1, options=3, answers="AC")[1]]
    check("mediconfusion", documents, *PAIRED)


def test_different_numbers_of_options_and_levels():
    documents = [
        choice(1, 2, "A", granularity="Image Level"),
        choice(2, 3, "C", granularity="image level"),
        choice(3, 4, "B", granularity="Contour Level"),
        choice(4, 2, "B", granularity=None),
    ]
    check("gmai_mmbench_val", documents, "accuracy", "acc_image_level", "acc_contour_level")


def test_several_right_options():
    documents = [
        {**choice(1, 4, None), "answers": ["A", "C", "D"]},
        {**choice(2, 2, None), "answers": ["B"]},
        {**choice(3, 3, None), "answers": ["A", "B"]},
    ]
    check("gmai_mmbench_mcls", documents, "mcls_accuracy", "mcls_recall")


def test_rotated_questions():
    documents = rotated([choice(1, 2, "A"), choice(2, 3, "C")])
    check("gmai_mmbench_val_rotated", documents, "mean_accuracy", "published_order", "worst_case", "flip_rate")
    check("gmai_mmbench_val_rotated", documents[:1], "mean_accuracy", "published_order")
    check("gmai_mmbench_val_rotated", documents[1:2], "mean_accuracy")


def test_rotated_questions_with_several_right_options():
    documents = rotated([{**choice(1, 3, None), "answers": ["A", "C"]}])
    names = ("mean_accuracy", "published_order", "worst_case", "flip_rate")
    check("gmai_mmbench_mcls_rotated", documents, *names)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 1], [0, 2, 2, 2]])
def test_classes(labels):
    documents = [
        {"doc_id": str(n), "image_id": str(n), "options": ["cyst", "stone", "tumor"], "label": label}
        for n, label in enumerate(labels)
    ]
    names = ("balanced_accuracy", "macro_auroc", "present_class_auroc")
    check("multimedeval_bloodmnist", documents, *names, say=lambda document, index: document["options"][index])


def test_a_single_class_has_no_auroc():
    documents = [{"doc_id": str(n), "options": ["cyst", "stone"], "label": 1} for n in range(3)]
    assert expected_scores(documents) == {"invalid_rate": 0, "balanced_accuracy": 0.5, "macro_auroc": 0}


@pytest.mark.parametrize(
    "document",
    [
        {"question": "?", "answer": "left lung"},
        {"report": "No effusion."},
        {"options": ["Edema", "Mass"], "labels": [0, 1]},
        {"options": ["Yes", "No"], "choices": "", "kind": "binary", "answer": "A"},
        {"options": ["x", "y"], "answer": None},
    ],
)
def test_families_without_a_formula(document):
    assert expected_scores([document]) == {}


def test_guessing_flips_more_often_the_more_options_there_are():
    values = [expected_scores(rotated([choice(1, options, "A")]))["flip_rate"] for options in (2, 3, 4)]
    assert values == pytest.approx([1 / 2, 8 / 9, 63 / 64])
    assert not any(map(math.isnan, values))
