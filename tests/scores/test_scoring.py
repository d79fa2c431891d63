"""Scores of recorded replies under every rule, wrong answers, and what people's labels make of a judge's score."""

import csv
import errno
import json
import math
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import JudgeNotConfigured, MedTasksError, RepliesError
from medtasks.extract.failure import failed_reply
from medtasks.families import choice, free_texts, kit_questions, paired_choice
from medtasks.families.family import Reply, Rule
from medtasks.judges.judge_client import JudgeSettings, JudgeVerdict
from medtasks.metrics.metric import Metric, Role
from medtasks.metrics.pairs import TOTAL
from medtasks.scores.comparing import compare_runs
from medtasks.scores.error_classes import (
    ErrorClass,
    WrongAnswer,
    count_kinds,
    draw_wrong_answers,
    error_class,
    export_wrong_answers,
    wrong_answers,
)
from medtasks.scores.judge_labels import checked_scores, read_labels, write_sheet
from medtasks.scores.scoring import rule_as_dict, score_replies
from medtasks.scores.subgroups import by_group
from medtasks.stats.intervals import difference_of_shares, interval
from medtasks.tasks.task_files import task_file

from ..extract.reading import reading, rows
from ..tables import each_row
from ..task_families import FAMILIES
from .two_runs import texts

DOCUMENTS = [
    {
        "doc_id": str(number),
        "image_id": None,
        "options": ["aspirin", "heparin"],
        "answer": answer,
    }
    for number, answer in enumerate("ABBA")
]
ALL_ANSWERED = {"scored_samples": 4, "failed_samples": 0}
MOST_RIGHT = {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}


def task(output_type="generate_until", **rows):
    return replace(
        FAMILIES["choice"].task(None, output_type), name="drugs", rows=rows, breakdown=()
    )


def numbered(*replies):
    return {str(number): Reply(text=reply) for number, reply in enumerate(replies)}


def values(scores):
    return {name: estimate.value for name, estimate in scores.estimates.items()}


def test_every_rule_scores_every_reply():
    strict_and_robust = task(
        reference=Rule("mediconfusion_reference"), robust=Rule("robust_choice")
    )
    scores = score_replies(
        strict_and_robust,
        DOCUMENTS,
        numbered("A", "(b)", "B", "I cannot tell from this image."),
    )
    assert list(scores) == ["reference", "robust"]
    reference, robust = scores.values()
    assert (reference.rule, robust.rule) == ("mediconfusion_reference v1", "robust_choice v6")
    assert values(reference) == {"accuracy": 0.5, "invalid_rate": 0.5, **ALL_ANSWERED}
    assert values(robust) == rule_as_dict(strict_and_robust, robust)["metrics"] == MOST_RIGHT
    assert robust.estimates["accuracy"].error == pytest.approx(0.25)
    assert (sum(robust.reasons.values()), robust.reasons["ok"]) == (4, 3)


def test_samples_without_a_reply_are_left_out():
    scores = score_replies(task(robust=Rule("robust_choice")), DOCUMENTS, numbered("A"))
    alone = scores["robust"]

    assert values(alone)["accuracy"] == 1
    assert rule_as_dict(task(), alone)["standard_errors"]["accuracy"] is None


def test_a_rule_may_have_a_template_of_answers():
    form = task(robust=Rule("robust_choice", "drug number {{ number }}, {{ text }}"))
    replies = numbered(
        "drug number 1, aspirin", "drug number 2, heparin", "warfarin", "drug number 1, aspirin"
    )

    assert values(score_replies(form, DOCUMENTS, replies)["robust"]) == MOST_RIGHT


def test_likelihoods_are_scored_like_answers():
    replies = {
        str(number): Reply(losses=losses)
        for number, losses in enumerate([(1, 2), (2, 1), (1, 1), (3, 4)])
    }
    by_loss = task("multiple_choice", robust=Rule("untied"))

    assert values(score_replies(by_loss, DOCUMENTS, replies)["robust"]) == MOST_RIGHT


@pytest.fixture
def pairs(sample):
    return load_documents("mediconfusion")


def rates(total):
    return (total.set_accuracy, total.individual_accuracy, total.confusion, total.invalid_rate)


@each_row(
    "task, rules",
    [
        ("mediconfusion_gd", ("greedy_reference v1", "untied v1")),
        ("mediconfusion_ps", ("prefix_reference v1", "untied v1")),
    ],
)
def test_pairs(pairs, task, rules):
    # Letters recorded for GD and PS are read as the reference reads them.
    for name in ("mediconfusion", task):
        scores = score_replies(
            task_file(name), pairs, texts(pairs, lambda document: document["answer"])
        )
        by_row = {row: score.rule for row, score in scores.items()}
        assert by_row == {
            "reference": "mediconfusion_reference v1",
            "robust": "robust_choice v6",
        }
        for score in scores.values():
            assert (rates(score.categories[TOTAL]), score.reasons) == ((1, 1, 0, 0), {"ok": 32})
            assert score.estimates["set_accuracy"].error == 0
    replies = {}
    for document in pairs:
        losses = (0.5, 1.5) if document["answer"] == "A" else (1.5, 0.5)
        replies[document["doc_id"]] = Reply(
            losses=(1.0, 1.0) if document["pair_id"] == "90001" else losses
        )
    reference, robust = score_replies(task_file(task), pairs, replies).values()
    assert (reference.rule, robust.rule) == rules
    assert reference.categories[TOTAL].individual_score == 31
    assert (
        reference.categories[TOTAL].confused == 1
    )  # a tie is A in GD and B in PS, twice the same
    assert robust.categories[TOTAL].individual_score == 30
    assert (reference.reasons, robust.reasons) == ({"ok": 32}, {"ok": 30, "ambiguous": 2})


def test_only_the_robust_rule_reads_a_letter_in_bold(pairs):
    scores = score_replies(
        task_file("mediconfusion"), pairs, texts(pairs, lambda document: "**A**")
    )
    assert scores["reference"].categories[TOTAL].invalid_rate == 1
    assert scores["robust"].categories[TOTAL].invalid_rate == 0
    summary = rule_as_dict(task_file("mediconfusion"), scores["reference"])
    assert summary["categories"][TOTAL]["confusion"] is None  # NaN is no JSON
    json.loads(json.dumps(summary, allow_nan=False))


def test_an_incomplete_pair_is_counted(pairs):
    half = texts(pairs[:9], lambda document: "A")

    total = score_replies(task_file("mediconfusion"), pairs, half)["reference"].categories[
        TOTAL
    ]
    assert (total.images, total.pairs, total.incomplete_pairs, total.invalid) == (9, 4, 1, 0)


def test_a_task_with_a_judge_needs_one(pairs):
    half = texts(pairs[:9], lambda document: "A")

    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_BASE_URL"):
        score_replies(task_file("mediconfusion_ff"), pairs, half)


def test_replies_of_the_wrong_kind_are_refused(pairs):
    losses = {"90001/2": Reply(losses=(1.0, 2.0))}
    both = {"90001/1": Reply(text="A"), **losses}
    for name, replies, sentence in (
        ("mediconfusion_gd", both, "reads log-likelihoods, and some replies are text"),
        ("mediconfusion", losses, "reads texts, and some replies are log-likelihoods"),
        ("mediconfusion_ff", losses, "reads texts, and some replies are log-likelihoods"),
        ("mediconfusion_all", losses, "is a group"),
    ):
        with pytest.raises(RepliesError, match=f"'{name}' {sentence}"):
            score_replies(task_file(name), pairs, replies)


def test_golden_mediconfusion_categories_have_their_published_sizes(
    test_data, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    pairs = load_documents("mediconfusion")
    for score in score_replies(
        task_file("mediconfusion"), pairs, texts(pairs, lambda _: "A")
    ).values():
        sizes = {name: counts.images for name, counts in score.categories.items()}
        assert sizes.pop(TOTAL) == 352
        assert sizes == json.loads((test_data / "mediconfusion/statistics.json").read_text())
        assert rates(score.categories[TOTAL]) == (0, 0.5, 1, 0)


# Groups


@pytest.fixture(scope="module")
def questions():
    rng = random.Random(2)
    same = {
        "dataset": "gmai_mmbench_val",
        "question": "What is it?",
        "options": ["polyp", "ulcer", "erosion"],
    }
    same |= {"granularity": "Image Level", "modality": "CT"}
    drawn = {
        "answer": "ABC",
        "department": ["Urology", "None", None],
        "clinical_task": ["Counting", "Bone"],
    }
    return [
        {
            **same,
            "doc_id": str(n),
            "image_id": str(n // 2),
            **{key: rng.choice(of) for key, of in drawn.items()},
        }
        for n in range(200)
    ]


@pytest.fixture(scope="module")
def replies(questions):
    rng = random.Random(4)
    words = ["A", "B", "C", "I cannot tell.", "A and B", "", "...."]
    return {document["doc_id"]: Reply(text=rng.choice(words)) for document in questions}


@pytest.fixture
def robust(questions, replies):
    return score_replies(task_file("gmai_mmbench_val"), questions, replies)["robust"]


def test_groups_equal_a_plain_mean(questions, replies, robust):
    frame = pd.DataFrame(questions)
    frame["right"] = [
        replies[document["doc_id"]].text == document["answer"] for document in questions
    ]
    for column in ("department", "clinical_task"):
        means, sizes = (
            frame.groupby(column)["right"].mean(),
            frame.groupby(column)["right"].size(),
        )
        groups = robust.groups[column]
        assert {group.name: group.questions for group in groups} == sizes.to_dict()
        assert {group.name: group.scores[0].value for group in groups} == pytest.approx(
            means.to_dict()
        )
        assert all(group.scores[0].error > 0 for group in groups)
    reports = replace(task_file("iu_xray_report"), breakdown=("department",))
    assert by_group(reports, questions, [{"reason": "ok"}] * len(questions)).groups == {}


ACCURACY = Metric(
    "accuracy", role=Role.MAIN, of=lambda score: float(score["value"] == score["target"])
)
GROUPED = SimpleNamespace(
    metrics=[ACCURACY], breakdown=("department",), family=SimpleNamespace(compared_only=())
)


def groups_of(*answers):
    """Return the groups of right (1) and wrong (0) answers, named after their order."""
    documents = [
        {"department": f"{place}"} for place, members in enumerate(answers) for _ in members
    ]
    scores = [
        {"cluster_id": f"{place} {number}", "target": 1, "value": value, "reason": "ok"}
        for place, members in enumerate(answers)
        for number, value in enumerate(members)
    ]
    return by_group(GROUPED, documents, scores).groups["department"]


def test_equal_groups_are_seldom_called_different():
    chance = np.random.default_rng(7)
    drawn = [groups_of(*chance.binomial(1, 0.6, size=(9, 40)).tolist()) for _ in range(200)]
    assert np.mean([min(group.p_holm[0] for group in groups) < 0.05 for groups in drawn]) < 0.08
    covered = [
        all(group.scores[0].low <= 0.6 <= group.scores[0].high for group in groups)
        for groups in drawn
    ]
    assert np.mean(covered) > 0.92


UNEQUAL = ([1, 0, 1] * 40, [1, 1, 0] * 30, [0, 0, 0, 1] * 20, [0] * 12)


def test_a_group_that_differs_is_found():
    _, other, worse, _ = groups_of(*UNEQUAL)

    assert worse.p_holm[0] < 0.01
    assert worse.p_holm[0] < other.p_holm[0]


def test_a_small_group_is_listed_without_a_comparison():
    large, _, _, small = groups_of(*UNEQUAL)

    assert (large.compared, small.compared) == (True, False)
    assert math.isnan(small.p_holm[0])


def test_compared_groups_share_the_level_of_their_intervals():
    large, _, _, small = groups_of(*UNEQUAL)

    for group, level in ((large, 1 - 0.05 / 3), (small, 0.95)):
        score = group.scores[0]
        ends = interval(
            score.value, score.error, group.questions - 1, True, group.questions, level
        )
        assert (score.low, score.high) == pytest.approx(ends, abs=1e-3)


def test_two_groups_are_one_test():
    first, second = groups_of([1] * 40 + [0] * 20, [1] * 20 + [0] * 40)

    assert first.p_holm[0] == pytest.approx(second.p_holm[0], rel=0.1)
    assert first.p_holm[0] == pytest.approx(
        difference_of_shares((2 / 3, 1 / 3), (60, 60), 59), rel=0.1
    )


def test_a_single_group_has_nothing_to_be_compared_with():
    (only,) = groups_of([1, 0] * 30)

    assert math.isnan(only.p_holm[0])


def test_as_many_patients_as_are_enough_are_not_few():
    task = task_file("gmai_mmbench_val")
    same = {
        "dataset": "gmai_mmbench_val",
        "question": "?",
        "options": ["polyp", "ulcer"],
        "answer": "A",
    }
    for patients in range(8, 13):  # the degrees of freedom of 10 come to 8.999999999999996
        documents = [{**same, "doc_id": str(n), "image_id": str(n)} for n in range(patients)]
        answers = {
            document["doc_id"]: Reply(text="AB"[n % 2]) for n, document in enumerate(documents)
        }
        assert bool(score_replies(task, documents, answers)["robust"].few_clusters) is (
            patients < 10
        ), patients


def test_a_column_that_no_question_has_is_told(questions, replies, warnings):
    task = replace(task_file("gmai_mmbench_val"), breakdown=("department", "modalty"))
    assert score_replies(task, questions, replies)["robust"].groups["modalty"] == ()
    told = "scores are not grouped by 'modalty', a column that 'gmai_mmbench_val' does not have"
    told += "; did you mean 'modality'"
    assert warnings == [f"{told}?"]


# Wrong answers

KINDS = {
    ErrorClass.REFUSAL: [
        "I am sorry, I cannot interpret medical images.",
        "Please see a doctor; I'm not able to diagnose this.",
    ],
    ErrorClass.IRRELEVANT: ["", None, "....", "1 2 3 4", "the the image " * 60],
    ErrorClass.MISUNDERSTOOD: [
        "A and B",
        "F",
        "The picture shows an endoscope in the stomach.",
    ],
    ErrorClass.FOR_A_HUMAN: ["B", "It is an ulcer."],
    ErrorClass.FAILED: [failed_reply("out of memory")],
}
read = reading("robust_choice")


@each_row("reply, kind", rows(KINDS))
def test_kinds_of_wrong_answers(reply, kind):
    assert error_class(reply, read(reply, ("polyp", "ulcer", "normal mucosa")).value) is kind


ORGAN = "Identify the organ in the highlighted area of the CT image. liver, spleen, kidney"
ASKED = {  # after the kinds of replies in the supplement of GMAI-MMBench
    ErrorClass.REFUSAL: [
        ("It would be unethical to make a diagnosis from one image; see a specialist.", ORGAN),
        ("Eine Diagnose kann ich nicht stellen.", ORGAN),
        ("请咨询医生。", "图中标记的是哪个器官？肝脏，脾脏，肾脏"),
        ("Обратитесь к врачу.", ORGAN),
    ],
    ErrorClass.IRRELEVANT: [
        ("Moreau K, Lindt P, et al. Imaging of the liver. Ann Radiol 2011; 4:17-22.", ORGAN),
        ("ARCHIVES OF UROLOGY\nhttp://urology.example/abstract/12", ORGAN),
        ("A moderate enlargement of the ventricles is illustrated in the image.", ORGAN),
        ("今天天气很好。", "图中标记的是哪个器官？肝脏，脾脏，肾脏"),
        ("Das Wetter ist schön.", "Welches Organ ist markiert? Leber, Milz, Niere"),
    ],
    ErrorClass.MISUNDERSTOOD: [
        ("The highlighted organ is the femur.", ORGAN),
        ("Das markierte Organ ist das Herz.", "Welches Organ ist markiert? Leber, Milz, Niere"),
        ("Das Herz.", ORGAN),  # in another language no word could be the same
        ("The heart.", ""),
        ("CまたはE。", ORGAN),
    ],
}


@each_row("reply, kind", rows(ASKED))
def test_wrong_answers_in_any_language_have_a_class(reply, kind):
    assert error_class(reply[0], None, reply[1]) is kind


def test_wrong_answers_are_sorted_into_kinds(questions, replies, robust):
    kinds = count_kinds(robust.wrong)
    written = [reply.text for reply in replies.values()]
    assert kinds[ErrorClass.REFUSAL] == written.count("I cannot tell.")
    assert kinds[ErrorClass.IRRELEVANT] == written.count("") + written.count("....")
    assert kinds[ErrorClass.MISUNDERSTOOD] == written.count("A and B")
    assert sum(kinds.values()) == round((1 - values(robust)["accuracy"]) * len(questions))
    assert rule_as_dict(task_file("gmai_mmbench_val"), robust)["wrong_answers"] == kinds
    score, losses = (
        {"target": "A", "value": "B", "reason": "ok"},
        {"0": Reply(losses=(2.0, 1.0, 3.0))},
    )
    (wrong,) = wrong_answers(task_file("gmai_mmbench_val_ll"), questions[:1], [score], losses)
    assert (wrong.kind, wrong.reply) == (ErrorClass.FOR_A_HUMAN, "")


def test_a_sample_of_wrong_answers_is_spread_over_groups(robust, questions):
    columns = task_file("gmai_mmbench_val").breakdown
    wrong = {"robust": robust.wrong, "some": robust.wrong[::3]}
    drawn = draw_wrong_answers(wrong, 53, columns)
    ids = {answer.document["doc_id"] for answer in drawn["robust"]}
    assert len(drawn["robust"]) == len(ids) == 53
    assert drawn["some"] == [
        answer for answer in wrong["some"] if answer.document["doc_id"] in ids
    ]
    for keys in (
        ("clinical_task",),
        ("clinical_task", "department"),
    ):  # as many of each group as it has of all
        all_groups, groups = (
            Counter(tuple(str(answer.document[key]) for key in keys) for answer in answers)
            for answers in (robust.wrong, drawn["robust"])
        )
        for group, number in all_groups.items():
            assert abs(groups[group] - 53 * number / len(robust.wrong)) < 1, group
    assert draw_wrong_answers(wrong, 53, columns) == drawn
    assert draw_wrong_answers(wrong, 500, columns) == wrong
    assert draw_wrong_answers({"robust": []}, 5, columns) == {"robust": []}


def _tear(stream):
    stream.write("half")
    raise OSError(errno.ENOSPC, "No space left on device")


def exported(path, wrong):
    """Rows of the exported file of wrong answers."""
    export_wrong_answers(path, [], {"robust": wrong})
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_export_leaves_a_column_for_the_human(robust, tmp_path):
    lines = exported(tmp_path / "errors.csv", robust.wrong)
    assert len(lines) == len(robust.wrong) > 0
    assert {line["class_by_human"] for line in lines} == {""}
    assert {line["class"] for line in lines} >= {"", "refusal"}
    assert lines[0]["options"] == "polyp | ulcer | erosion"


def test_exported_cells_hold_no_escape_sequence(robust, tmp_path):
    evil = replace(robust.wrong[0], reply="\x1b[2J\ud800")
    assert exported(tmp_path / "evil.csv", [evil])[0]["reply"] == "?[2J?"


def test_an_export_that_fails_leaves_the_earlier_file(robust, tmp_path, monkeypatch):
    exported(tmp_path / "errors.csv", robust.wrong)
    good = (tmp_path / "errors.csv").read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(
            "csv.writer", lambda stream: SimpleNamespace(writerow=lambda row: _tear(stream))
        )
        with pytest.raises(MedTasksError, match=r"cannot write .*: No space left"):
            export_wrong_answers(tmp_path / "errors.csv", [], {"robust": robust.wrong})
    assert (tmp_path / "errors.csv").read_bytes() == good


def test_wrong_answers_on_private_data_are_not_exported(tmp_path):
    with pytest.raises(MedTasksError, match="MEDTASKS_LOG_TEXT=private"):
        export_wrong_answers(tmp_path / "private.csv", ["private"], {})

    assert not (tmp_path / "private.csv").exists()


READ = {"target": "A", "value": "-1", "reason": "ok"}


def test_no_exported_cell_is_a_formula(tmp_path):
    """Replies, questions and the user's own columns, their names included; images are named without their folder."""
    document = {
        "doc_id": "=1+1",
        "question": "@SUM(A1)",
        "options": ["+1", "-1"],
        "site": "\tA",
        "=cmd": 7,
    }
    document |= {"image_files": ["/secret/x/scan.png"], "patient_id": "p1", "score": -3}
    wrong = [WrongAnswer(document, READ, "=cmd|'/c calc'!A0", ErrorClass.FOR_A_HUMAN)]

    (line,) = exported(tmp_path / "errors.csv", wrong)
    assert not [
        cell
        for cell in (*line, *line.values())
        if cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    ]
    assert (line["reply"], line["images"]) == ("'=cmd|'/c calc'!A0", "scan.png")
    assert (line["site"], line["'=cmd"], "patient_id" in line) == ("'\tA", "7", False)


def test_own_columns_with_a_name_of_ours_are_renamed(tmp_path):
    own = {
        "doc_id": "1",
        "options": ["a", "b"],
        "reply": "mine",
        "reply_own": "mine, too",
        "rule": 3,
    }
    (line,) = exported(
        tmp_path / "errors.csv", [WrongAnswer(own, READ, "B", ErrorClass.FOR_A_HUMAN)]
    )
    with (tmp_path / "errors.csv").open(encoding="utf-8") as stream:
        headings = next(csv.reader(stream))
    assert len({*headings}) == len(headings)
    assert (line["reply"], line["reply_own"], line["reply_own_own"]) == (
        "B",
        "mine",
        "mine, too",
    )


NUMBER = 40
ASKED = "reply {}"


class Judge:
    """A judge that reads the numbers of replies: it calls the first 30 of 40 right, and fails for the last."""

    settings, label = JudgeSettings("http://127.0.0.1:9/v1", "m"), "m"

    def __init__(self, right, wrong):
        self.texts = {True: right, False: wrong}

    def ask(self, system, user, parse, *, prompt_version):
        number = next(
            number for number in reversed(range(NUMBER)) if ASKED.format(number) in user
        )
        text = self.texts[number < 30]
        return JudgeVerdict(None if number == NUMBER - 1 else parse(text), None, False, text)


JUDGED = {  # task, module that asks, how, what the judge says of right and wrong replies, and the first row's score
    "medheval_knowledge_open": (
        free_texts,
        "judge_if_there",
        '{"model_1": 1}',
        '{"model_1": 0}',
        "knowledge_rate",
    ),
    "gmai_mmbench_val_judged": (choice, "judge_for", "A", "B", "accuracy"),
    "mediconfusion_ff": (
        paired_choice,
        "judge_for",
        "A: 9\nB: 1\nSo",
        "A: 1\nB: 9\nSo",
        "individual_accuracy",
    ),
    "medevalkit_vqa_rad_judged": (
        kit_questions,
        "judge_for",
        "<judge>0</judge>",
        "<judge>1</judge>",
        "accuracy",
    ),
}


JUDGED_DOCUMENTS = [
    {
        "doc_id": f"{number:02}",
        "image_id": f"image {number // 2}",
        "pair_id": str(number // 2),
        "position": number % 2 + 1,
        "dataset": "own",
        "categories": [],
        "granularity": "Box Level",
        "hint": None,
        "question": "What is this?",
        "options": ["mass", "fluid"],
        "answer": "A",
    }
    for number in range(NUMBER)
]
REPLIES = {
    item["doc_id"]: Reply(text=ASKED.format(number))
    for number, item in enumerate(JUDGED_DOCUMENTS)
}


@pytest.fixture
def asked(monkeypatch):
    def of(name):
        module, function, right, wrong, _ = JUDGED[name]
        monkeypatch.setattr(module, function, lambda *_: Judge(right, wrong))
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", "own,medheval_knowledge_open")
        return task_file(name)

    return of


def filled(path, answer):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table["right"] = [answer(row) for row in table.to_dict("records")]
    table.to_csv(path, index=False)
    return table.to_dict("records")


def truth(row):
    """People call replies 3 to 32 right: the judge is wrong about 0, 1, 2, 30, 31 and 32."""
    return "yes" if 3 <= int(row["doc_id"]) <= 32 else "No"


def first_score(task, sheet, replies=REPLIES):
    return next(
        iter(checked_scores(task, JUDGED_DOCUMENTS, replies, read_labels(sheet)).values())
    )


@pytest.mark.parametrize("name", JUDGED)
def test_every_judged_family_is_checked(asked, tmp_path, name):
    task, sheet = asked(name), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, JUDGED_DOCUMENTS, REPLIES, 100, None) == (30, 9)
    rows = filled(sheet, truth)
    assert {float(row["weight"]) for row in rows} == {1.0}
    assert {row["reply"] for row in rows} == {
        reply.text for reply in list(REPLIES.values())[:-1]
    }
    score = first_score(task, sheet)
    expected = pytest.approx(9 / 39 if score.metric == "knowledge_rate" else 30 / 39)
    assert score.metric == JUDGED[name][-1]
    assert score.judge.labels == 39  # one was not judged
    assert (score.judged, score.judge.corrected.value) == (expected, expected)
    assert score.judge.sensitivity.value == pytest.approx(27 / 30)
    assert score.judge.specificity.value == pytest.approx(6 / 9)
    assert score.judge.corrected.low < score.judge.corrected.value < score.judge.corrected.high


def test_half_of_each_verdict_is_drawn_with_its_weight(asked, tmp_path):
    task, sheet = asked("medheval_knowledge_open"), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, JUDGED_DOCUMENTS, REPLIES, 10, None) == (5, 5)
    rows = filled(sheet, truth)
    assert {(int(row["doc_id"]) < 30, float(row["weight"])) for row in rows} == {
        (True, 30 / 5),
        (False, 9 / 5),
    }
    assert [row["doc_id"] for row in rows] != sorted(
        row["doc_id"] for row in rows
    )  # the order tells nothing
    write_sheet(tmp_path / "again.csv", task, JUDGED_DOCUMENTS, REPLIES, 10, None)
    assert filled(tmp_path / "again.csv", truth) == rows
    right = sum(float(row["weight"]) for row in rows if truth(row) == "yes") / 39
    assert first_score(task, sheet).judge.corrected.value == pytest.approx(1 - right)
    assert write_sheet(tmp_path / "most.csv", task, JUDGED_DOCUMENTS, REPLIES, 30, None) == (
        21,
        9,
    )
    # Sheets as other programs save them.
    task, sheet, plain = asked("mediconfusion_ff"), tmp_path / "odd.csv", tmp_path / "plain.csv"
    odd = {
        name: Reply(text=f'={reply.text};\u2028"a", b\r\n') for name, reply in REPLIES.items()
    }
    write_sheet(sheet, task, JUDGED_DOCUMENTS, odd, 10, "fenced")
    filled(sheet, truth)
    assert first_score(task, sheet, odd).judge.labels == 10
    write_sheet(plain, task, JUDGED_DOCUMENTS, REPLIES, 10, "fenced")
    filled(plain, truth)
    text = plain.read_text().replace(",", ";").replace(".0;", ",0;").replace(".8;", ",8;")
    (tmp_path / "other.csv").write_text(text, encoding="utf-8-sig")
    assert read_labels(tmp_path / "other.csv") == read_labels(plain)


def test_labels_correct_the_difference_of_two_judged_runs(asked, tmp_path):
    task = asked("medheval_knowledge_open")
    sheets = {name: tmp_path / f"{name}.csv" for name in "AB"}
    for name, right in (
        ("A", truth),
        ("B", lambda row: "yes" if int(row["doc_id"]) < 33 else "no"),
    ):
        write_sheet(sheets[name], task, JUDGED_DOCUMENTS, REPLIES, 100, None)
        filled(sheets[name], right)
    runs = dict.fromkeys("AB", REPLIES)
    (plain,) = compare_runs(
        task, JUDGED_DOCUMENTS, runs, ["knowledge_rate"], ["reference"]
    ).comparisons
    assert (plain.result.difference, plain.result.p) == (0, 1)
    labels = {name: read_labels(sheet) for name, sheet in sheets.items()}
    compared = compare_runs(
        task, JUDGED_DOCUMENTS, runs, ["knowledge_rate"], ["reference"], labels=labels
    )
    (test,) = compared.comparisons
    corrected = [first_score(task, sheets[name]).judge.corrected.value for name in "AB"]
    assert (test.result.first, test.result.second) == pytest.approx(corrected)
    assert test.result.difference == pytest.approx(-3 / 39)
    assert test.result.low < test.result.difference < test.result.high
    assert compared.warnings == ["knowledge_rate corrected by people's labels (PPI++)"]
    (alike,) = compare_runs(
        task,
        JUDGED_DOCUMENTS,
        runs,
        ["knowledge_rate"],
        ["reference"],
        labels=dict.fromkeys("AB", labels["A"]),
    ).comparisons
    assert (alike.result.difference, alike.result.p) == (0, 1)
    with pytest.raises(MedTasksError, match="labels are of one repeat"):
        compare_runs(task, JUDGED_DOCUMENTS, {"A": [REPLIES] * 2, "B": REPLIES}, labels=labels)
    (sentence,) = compare_runs(task, JUDGED_DOCUMENTS, runs, ["knowledge_rate"]).warnings
    assert sentence.startswith("verdicts of the judge are taken as true")


def test_lines_without_a_digest_are_of_no_reply(asked, tmp_path):
    task, sheet = asked("mediconfusion_ff"), tmp_path / "sheet.csv"
    write_sheet(sheet, task, JUDGED_DOCUMENTS, REPLIES, 10, None)
    filled(sheet, truth)
    table = pd.read_csv(sheet, dtype=str, keep_default_na=False)
    table.assign(digest="", doc_id=[f"other {n}" for n in range(10)]).to_csv(sheet, index=False)

    with pytest.raises(MedTasksError, match="0 of 10 lines are of its replies"):
        first_score(task, sheet)


def test_what_cannot_be_read_or_used_is_said(asked, tmp_path, monkeypatch):
    def refuse(sentence, call, *arguments):
        with pytest.raises(MedTasksError, match=sentence):
            call(*arguments)

    def sheet_of(task, name="more.csv", rule=None):
        write_sheet(tmp_path / name, task, JUDGED_DOCUMENTS, REPLIES, 10, rule)
        return tmp_path / name

    task = asked("mediconfusion_ff")
    sheet = sheet_of(task, "sheet.csv")
    refuse("exists, and may hold labels", sheet_of, task, "sheet.csv")
    refuse("no reply of this run has a label; 10 of 10 lines", first_score, task, sheet)
    filled(sheet, truth)
    others = {name: Reply(text=f"{reply.text}!") for name, reply in REPLIES.items()}
    refuse("0 of 10 lines are of its replies", first_score, task, sheet, others)
    filled(sheet, lambda row: "perhaps")
    refuse("row 2: 'perhaps' under 'right' is neither yes nor no", read_labels, sheet)
    (tmp_path / "bad.csv").write_text("doc_id,right\n1,yes\n")
    refuse("lacks the columns digest, weight", read_labels, tmp_path / "bad.csv")
    refuse("cannot read labels", read_labels, tmp_path / "none.csv")
    refuse("unknown rule 'robust'", sheet_of, task, "more.csv", "robust")
    refuse(
        "no score of 'mediconfusion' is the share of replies that a judge",
        sheet_of,
        task_file("mediconfusion"),
    )
    task = asked("medheval_knowledge_open")
    filled(sheet_of(task), lambda row: truth(row) if int(row["doc_id"]) < 30 else "")
    judge = first_score(task, tmp_path / "more.csv").judge
    assert (judge.labels, math.isnan(judge.corrected.value)) == (5, True)
    monkeypatch.delenv("MEDTASKS_LOG_TEXT")
    private = "'medheval_knowledge_open,own' is credentialed, and a sheet of judged"
    refuse(private, sheet_of, task, "sheet2.csv")
