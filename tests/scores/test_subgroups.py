"""Groups by columns that a user names: gaps, one test per column, sizes, and columns that cannot group."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from medtasks.data.document_store import load_documents
from medtasks.errors import RepliesError
from medtasks.metrics.metric import Metric, Role
from medtasks.report.collecting import collect_run
from medtasks.runs.replies import read_replies
from medtasks.runs.run import open_run
from medtasks.scores.scoring import score_replies
from medtasks.scores.subgroups import by_group, grouped_by
from medtasks.stats.intervals import EstimatedValue, difference_of_values
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from ..tables import each_row
from .two_runs import own_tasks, texts, write_replies

ACCURACY = Metric("accuracy", role=Role.MAIN, of=lambda score: score["value"])
TASK = SimpleNamespace(
    metrics=[ACCURACY],
    breakdown=("sex", "site"),
    family=SimpleNamespace(compared_only=(), compared_in_groups=()),
)


def answers(chance, worse=0.0, patients=120, images=3):
    """Return clustered answers: sex is the patient's, the site may change from image to image."""
    documents, scores = [], []
    for patient in range(patients):
        sex, skill = "FM"[int(chance.random() < 0.4)], chance.beta(7, 3)
        for _ in range(images):
            site = "abc"[int(chance.integers(3))]
            documents.append({"sex": sex, "site": site})
            right = float(chance.random() < skill - worse * (site == "b"))
            scores.append({"cluster_id": f"patient {patient}", "value": right, "reason": "ok"})
    return documents, scores


def drawn(chance, worse=0.0):
    """Return groups of such answers."""
    return by_group(TASK, *answers(chance, worse))


def test_p_values_of_groups_are_corrected_for_their_number():
    documents, scores = answers(np.random.default_rng(1), worse=0.15)
    least = min(group.p_holm[0] for group in by_group(TASK, documents, scores).groups["site"])
    alone = [{"sex": document["site"] == "b", "site": "all"} for document in documents]
    (test,) = by_group(TASK, alone, scores).tests["sex"]
    assert least == pytest.approx(3 * test.p, rel=0.25)
    assert least < 0.3, "and is no 1"


def test_equal_groups_are_seldom_called_different():
    chance, simulations = np.random.default_rng(5), 120
    equal = [drawn(chance) for _ in range(simulations)]
    most = binom.ppf(0.99, simulations, 0.05)
    for column in TASK.breakdown:
        assert sum(result.tests[column][0].p < 0.05 for result in equal) <= most
        covered = [
            all(
                gap.low <= 0 <= gap.high
                for group in result.groups[column]
                for gap in group.gaps
            )
            for result in equal
        ]
        assert simulations - sum(covered) <= most
    both = [group.gaps[0] for group in equal[0].groups["sex"]]
    assert [both[1].value, both[1].low] == [-both[0].value, -both[0].high], (
        "one gap, seen from both sides"
    )
    either = [
        min(result.tests[column][0].p_holm for column in TASK.breakdown) < 0.05
        for result in equal
    ]
    assert sum(either) <= most
    of_equal = [
        test.different
        for result in equal
        for column in TASK.breakdown
        for test in result.tests[column]
    ]
    assert sum(map(bool, of_equal)) <= most


def test_a_planted_gap_is_found():
    chance = np.random.default_rng(6)
    planted = [drawn(chance, worse=0.3) for _ in range(20)]

    named = [result.tests["site"][0].different for result in planted]
    assert ({*named} <= {"b", ""}, named.count("b") >= 19) == (True, True)
    gaps = [
        group.gaps[0].value
        for result in planted
        for group in result.groups["site"]
        if group.name == "b"
    ]
    assert np.mean(gaps) == pytest.approx(-0.3, abs=0.03)


def within_patients(chance, gap=0.0, patients=40, images=5):
    """Return answers to images of patients of different skill, a quarter of whose images are group b."""
    documents, scores = [], []
    for patient in range(patients):
        skill = chance.normal(0.4, 1)
        for _ in range(images):
            is_b = chance.random() < 0.25
            documents.append({"site": "ab"[int(is_b)]})
            right = float(chance.random() < 1 / (1 + math.exp(-skill)) - gap * is_b)
            scores.append({"cluster_id": f"patient {patient}", "value": right, "reason": "ok"})
    return documents, scores


def test_groups_within_patients_are_compared_within_patients():
    """The patient's skill is in both groups; taken for independent, a gap of 25 points was found in 43 % of runs."""
    task, chance = (
        SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)}),
        np.random.default_rng(3),
    )
    p_values = []
    for gap in (0.25, 0.0):
        tests = [
            by_group(task, *within_patients(chance, gap)).tests["site"] for _ in range(120)
        ]
        p_values.append(np.array([test[0].p for test in tests if test]))
    assert np.mean(p_values[0] < 0.05) > 0.6
    assert np.sum(p_values[1] < 0.05) <= binom.ppf(0.99, len(p_values[1]), 0.05)


def test_a_gap_has_the_error_of_differences_within_patients():
    """Every patient has one image in each group: the gap is a mean of differences, with about the error of these."""
    chance = np.random.default_rng(4)
    skill = chance.normal(0, 1, 200)
    documents = [{"site": "ab"[half]} for _ in range(200) for half in range(2)]
    right = (chance.normal(size=400) < np.repeat(2 * skill, 2)).astype(float)
    scores = [
        {"cluster_id": f"patient {n // 2}", "value": value, "reason": "ok"}
        for n, value in enumerate(right.tolist())
    ]
    task = SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)})
    gap = by_group(task, documents, scores).groups["site"][0].gaps[0]
    differences = right[::2] - right[1::2]
    expected = differences.std(ddof=1) / math.sqrt(200)
    assert gap.value == pytest.approx(differences.mean())
    independent = math.hypot(
        *(right[half::2].std(ddof=1) / math.sqrt(200) for half in range(2))
    )
    # Samples outside a group are taken to be worth as much as all are on average, which is less than they are here.
    assert expected < gap.error < 0.8 * independent


def sites(*sizes):
    """Groups of so many samples, of every three of which two are right."""
    documents = [{"site": str(place)} for place, size in enumerate(sizes) for _ in range(size)]
    scores = [
        {"cluster_id": f"{n}", "value": float(n % 3 > 0), "reason": "ok"}
        for n in range(sum(sizes))
    ]
    return by_group(
        SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)}), documents, scores
    )


def test_a_small_group_is_listed_without_a_comparison():
    large, other, small = sites(60, 40, 19).groups["site"]
    assert [group.compared for group in (large, other, small)] == [True, True, False]
    assert (math.isnan(small.gaps[0].value), math.isnan(small.p_holm[0])) == (True, True)
    rest = [float(n % 3 > 0) for n in range(60, 119)]
    assert large.gaps[0].value == pytest.approx(40 / 60 - np.mean(rest))


def test_a_group_is_not_compared_with_a_small_one_alone():
    alone, few = sites(60, 19).groups["site"]
    assert (alone.compared, few.compared, math.isnan(alone.p_holm[0])) == (True, False, True)
    assert sites(60, 19).tests["site"] == ()


def test_the_interval_of_a_gap_is_that_of_newcombe():
    # Newcombe (1998), table II, row (a) of method 10: 56/70 - 48/80.
    first, second = (
        EstimatedValue(0.8, 0, 0.6920, 0.8770),
        EstimatedValue(0.6, 0, 0.4904, 0.7004),
    )
    difference = difference_of_values(first, second)
    assert (difference.low, difference.high) == pytest.approx((0.0524, 0.3339), abs=2e-3)


def test_which_groups_are_compared_follows_from_the_design():
    def parts(right):
        documents = [{"site": "ab"[patient > 9]} for patient in range(40) for _ in range(6)]
        chance = np.random.default_rng(1)
        scores = [
            {"cluster_id": f"{n // 6}", "value": float(right(n // 6, chance)), "reason": "ok"}
            for n in range(240)
        ]
        return by_group(
            SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)}), documents, scores
        ).groups["site"]

    alike, mixed, equal = (
        parts(lambda patient, chance: patient % 2),
        parts(lambda patient, chance: chance.random() < 0.5),
        parts(lambda patient, chance: True),
    )
    for groups in (alike, mixed, equal):  # six of each of ten patients are worth 30
        assert [group.compared for group in groups] == [True, True]


def test_two_equal_groups_have_symmetric_intervals():
    documents = [{"site": "ab"[n % 2]} for n in range(60)]
    scores = [{"cluster_id": f"{n}", "value": 1.0, "reason": "ok"} for n in range(60)]
    first, second = by_group(
        SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)}), documents, scores
    ).groups["site"]
    assert -first.gaps[0].low == pytest.approx(first.gaps[0].high)
    assert [second.gaps[0].low, second.gaps[0].high] == [
        -first.gaps[0].high,
        -first.gaps[0].low,
    ]


HALVES = [
    f"{n}.5" for n in range(39, -1, -1)
]  # texts of a table, in any order: 9.5 is less than 10.5
OF_HALVES = {
    "age 0.5 to 9.5": 10,
    "age 10.5 to 19.5": 10,
    "age 20.5 to 29.5": 10,
    "age 30.5 to 39.5": 10,
}


@each_row(
    "ages, sizes",
    [
        (range(18, 98), {"age 18 to 37": 20, "age 38 to 57": 20, "age 58 to 77": 20, "age 78 to 97": 20}),
        (HALVES, OF_HALVES),
        (map(float, range(-8, 8)), {"age -8 to -5": 4, "age -4 to -1": 4, "age 0 to 3": 4, "age 4 to 7": 4}),
        (range(2_000_001, 2_000_015), {
            "age 2000001 to 2000003": 3, "age 2000004 to 2000007": 4, "age 2000008 to 2000010": 3,
            "age 2000011 to 2000014": 4,
        }),
        # Equal numbers stay together, on whichever side of a border more fit.
        ([0] * 80 + [*range(1, 21)], {"age 0": 80, "age 1 to 20": 20}),
        ([*range(12), *[99] * 88], {"age 0 to 11": 12, "age 99": 88}),
        (
            [*range(1, 8), *[8] * 6, *range(9, 20)],
            {"age 1 to 6": 6, "age 7 to 8": 7, "age 9 to 13": 5, "age 14 to 19": 6},
        ),
        # What is no number is a group, as is what is missing, and neither moves a border.
        (
            [*HALVES, None, math.nan, "", [], "unknown", "90+"],
            {**OF_HALVES, "age not given": 4, "90+": 1, "unknown": 1},
        ),
        # Grades, months and codes are groups of their own, the largest first.
        ([7, *range(12)], {"7": 2, "0": 1, "1": 1, "10": 1, "11": 1, **dict.fromkeys("2345689", 1)}),
        ([f"site {n}" for n in range(20, 50)], {f"site {n}": 1 for n in range(20, 50)}),
        ([1, 1, None], {"1": 2}),
    ],
)  # fmt: skip
def test_a_column_of_many_numbers_is_grouped_by_quarters(ages, sizes):
    documents = [{"age": age} for age in ages]
    scores = [
        {"cluster_id": f"{n}", "value": float(n % 3 > 0), "reason": "ok"}
        for n in range(len(documents))
    ]
    groups = by_group(
        SimpleNamespace(**{**vars(TASK), "breakdown": ("age",)}), documents, scores
    ).groups["age"]
    assert [(group.name, group.questions) for group in groups] == list(sizes.items())


def test_report_has_the_groups_of_scores(tmp_path):
    with own_tasks(tmp_path / "own") as right:
        questions = tmp_path / "own" / "questions.jsonl"
        rows = [
            {**json.loads(line), "age": 18 + number % 80}
            for number, line in enumerate(questions.open())
        ]
        questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        run = write_replies(tmp_path / "run", "letters", ["A"] * 200 + right[200:])
        report = collect_run(open_run(run), by=["age"])
        task = grouped_by(task_file("letters"), task_documents(task_file("letters")), ["age"])
        scored = score_replies(
            task, task_documents(task), read_replies(run, task_documents(task))
        )
    (part,) = report.tasks
    names = ["age 18 to 37", "age 38 to 57", "age 58 to 77", "age 78 to 97"]
    assert part.rules[0].groups == scored["none"].groups
    assert [group.name for group in part.rules[0].groups["age"]] == names
    assert all(group.compared for group in part.rules[0].groups["age"])
    ages = {row["question"]: row["age"] for row in rows}
    for item in part.items:  # links of the table lead to them
        assert item.groups["age"] == (names[(ages[item.question] - 18) // 20],)


def test_a_rounding_error_makes_no_group_too_small():
    for right in range(
        8, 14
    ):  # 21 patients are worth 20 samples, which comes to 19.999999999999993 for some shares
        documents = [{"site": "Bonn"}] * 21 + [{"site": "Ulm"}] * 60
        scores = [
            {"cluster_id": f"{n}", "value": float(n < right or n % 2), "reason": "ok"}
            for n in range(81)
        ]
        groups = by_group(
            SimpleNamespace(**{**vars(TASK), "breakdown": ("site",)}), documents, scores
        ).groups["site"]
        assert [group.compared for group in groups] == [True, True], right


def test_pairs_are_grouped_by_a_column_of_their_images(sample):
    pairs = [
        {**item, "site": "ab"[number % 4 // 2], "half": item["position"]}
        for number, item in enumerate(load_documents("mediconfusion"))
    ]
    task = grouped_by(task_file("mediconfusion"), pairs, ["site", "half"])
    replies = texts(
        pairs, lambda item: item["answer"] if item["site"] == "a" or item["half"] == 1 else "C"
    )
    groups = score_replies(task, pairs, replies)["robust"].groups
    values = {group.name: [score.value for score in group.scores] for group in groups["site"]}
    assert values == {"a": [1, 1], "b": [0, 0.5]}
    assert {group.name: group.scores[1].value for group in groups["half"]} == {"1": 1, "2": 0.5}
    aged = [
        {**item, "age": None if number < 2 else number // 2}
        for number, item in enumerate(pairs)
    ]
    groups = score_replies(grouped_by(task, aged, ["age"]), aged, replies)["robust"].groups[
        "age"
    ]
    sizes = {
        "age 1 to 4": 8,
        "age 5 to 7": 6,
        "age 8 to 11": 8,
        "age 12 to 15": 8,
        "age not given": 2,
    }
    assert {group.name: group.questions for group in groups} == sizes
    assert [group.name for group in groups] == list(sizes)


@each_row(
    "task, columns, sentence",
    [
        (
            "letters",
            "sexx",
            "'letters' has no column 'sexx'; did you mean 'sex'. Its columns: question, sex",
        ),
        (
            "letters",
            "question",
            "column 'question' of 'letters' has 800 different values, and groups need 1 to 60",
        ),
        ("iu_xray_report", "sex", "has no main score of single samples or pairs"),
    ],
)
def test_a_column_that_cannot_group_is_one_sentence(tmp_path, task, columns, sentence):
    with own_tasks(tmp_path / "own"):
        documents = [
            {"question": f"number {n}", "sex": "FM"[n % 2], "site": "a"} for n in range(800)
        ]
        with pytest.raises(RepliesError, match=sentence):
            grouped_by(task_file(task), documents, [columns])
    private = [{"dataset": "medheval_knowledge_open", "sex": "F"}]
    with pytest.raises(
        RepliesError, match=r"by .*kind.* only, because values of 'sex' are text"
    ):
        grouped_by(task_file("medheval_visual_cxr"), private, ["sex"])
