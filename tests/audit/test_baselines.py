"""Baselines: every rule reads them as meant, they score as in a run, and guessing as the mean of all guesses."""

import dataclasses
import itertools
import json
import math
from collections import Counter

import pytest

from medtasks.audit.baselines import baselines
from medtasks.audit.scoring import rows_of, score_replies, scores_of
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.data.variants import blind, rotated
from medtasks.extract import labeler
from medtasks.extract.failure import failed_reply
from medtasks.families import family
from medtasks.families.family import Reply, needs_labeler
from medtasks.metrics.metric import evaluate
from medtasks.metrics.pairs import TOTAL
from medtasks.metrics.report_metrics import report_metric
from medtasks.runs.logged_samples import FOLDER_NAME
from medtasks.tasks.task_files import task_file, task_files

from .. import medheval_sources, tiny_gmai
from ..tables import each_row

JUDGED = ("mediconfusion_ff", "gmai_mmbench_val_judged")
OPEN_MEDHEVAL = ("medheval_knowledge_open", "medheval_visual_report")
TASKS = [name for name, task in task_files().items() if task.kind == "task"]
MULTIMEDEVAL = [name for name in TASKS if name.startswith("multimedeval_")]
MEDHEVAL = [name for name in TASKS if name.startswith("medheval_")]


def by_name(task, documents):
    made = baselines(task_file(task), documents)
    found = {one.name: one for one in made}
    assert len(found) == len(made)
    return found


def texts(documents, reply):
    return {document["doc_id"]: Reply(text=reply(document)) for document in documents}


def choice(number, answer, options=4, **further):
    names = ["liver", "left kidney", "spleen", "bladder", "heart"][:options]
    return {
        "doc_id": str(number),
        "image_id": f"i{number}",
        "granularity": "Image Level",
        "options": [f"{name} {number}" for name in names],
        "answer": answer,
        **further,
    }


def no_score(baseline):
    """The rules under which a baseline has no score."""
    return {name for name, scores in baseline.scores.items() if all(map(math.isnan, scores.values()))}


@pytest.fixture(scope="module")
def medheval(tmp_path_factory):
    return medheval_sources.prepared_home(tmp_path_factory.mktemp("medheval"))


@pytest.fixture
def gmai(tmp_path):
    tiny_gmai.write(tmp_path / "GMAI-MMBench_VAL.tsv", tiny_gmai.rows(60))
    prepare("gmai_mmbench_val", Options(tmp_path, allow_changed=True))
    return load_documents("gmai_mmbench_val")


def check_tasks(names):
    """Every rule reads every constant reply as meant: no invalid one, and what the keys say."""
    for name in names:
        task = task_file(name)
        documents = load_documents(task.dataset)
        for one in baselines(task, documents):
            missing = {name for name, row in task.rows.items() if needs_labeler(row)}
            if name.startswith("multimedeval_chestxray14") and one.name == "all findings":
                missing = {"reference"}  # a reply of several labels is none of them for the reference
            assert no_score(one) == missing, (name, one)
            assert set(one.scores) == set(task.rows)
            assert all(f"No score under {rule}: " in one.describes for rule in missing)
            for rule in set(task.rows) - missing:
                invalid = one.scores[rule].get("invalid_rate", 0.0)
                assert invalid == 0 or name.startswith("medheval_"), (name, one)
                if name.startswith("multimedeval_") and "answer" in documents[0] and "options" in documents[0]:
                    assert one.scores[rule]["accuracy"] == pytest.approx(expected(one.name, documents)), (name, one)


def expected(name, documents):
    """Accuracy of a constant letter or text, counted from the keys."""
    keys = Counter(document["answer"] for document in documents)
    if name == "most frequent answer":
        return max(keys.values()) / len(documents)
    if name == "random answer":
        return sum(1 / len(document["options"]) for document in documents) / len(documents)
    said = name.removeprefix("always ")
    letters = dict(zip(documents[0]["options"], "ABCDE", strict=False))
    return keys[letters.get(said, said)] / len(documents)


def test_every_rule_of_multimedeval_reads_them(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    check_tasks(name for name in MULTIMEDEVAL if not name.endswith("_5shot"))


def test_every_rule_of_medheval_reads_them(medheval, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(medheval))
    check_tasks(MEDHEVAL)


@each_row("task", ["mediconfusion", "mediconfusion_gd"])
def test_pairs(sample, task):
    documents = load_documents("mediconfusion")
    found, names = by_name(task, documents), ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")
    assert list(found) == ["always A", "always B", "most frequent answer", "random answer"]
    for rule in task_file(task).rows:
        for name in ("always A", "always B", "most frequent answer"):
            assert found[name].scores[rule] == dict(zip(names, (0, 0.5, 1, 0), strict=True))
        assert found["random answer"].scores[rule] == dict(zip(names, (0.25, 0.5, 0.5, 0), strict=True))
    cut = documents[:21]  # the last pair is incomplete
    recorded = score_replies(task_file("mediconfusion"), cut, texts(cut, lambda _: "B"))
    for rule, scores in by_name("mediconfusion", cut)["always B"].scores.items():
        assert scores == {name: getattr(recorded[rule].categories[TOTAL], name) for name in scores}


def test_tasks_and_documents_without_baselines():
    read = {"doc_id": "1", "question": "?", "answer": "A", "options": ["x", "y"], "report": "Normal."}
    for task in (*JUDGED, *OPEN_MEDHEVAL, "medheval"):
        assert baselines(task_file(task), [read, {**read, "doc_id": "2"}]) == ()
    assert baselines(task_file("gmai_mmbench_test"), [choice(1, None), choice(2, None)]) == ()
    assert baselines(task_file("gmai_mmbench_val"), []) == ()


def test_names_and_ties():
    documents = [{**choice(n, "A"), "dataset": "mediconfusion", "options": ["yes", "no", "maybe"]} for n in range(3)]
    assert list(by_name("multimedeval_pubmedqa", documents))[:3] == ["always yes", "always no", "always maybe"]
    same = [{**one, "options": ["yes", "yes", "maybe"]} for one in documents]
    assert list(by_name("gmai_mmbench_val", same))[:3] == ["always A", "always B", "always C"]
    documents = [choice(n, "CBCBA"[n]) for n in range(5)]  # of equally frequent answers the first
    assert by_name("gmai_mmbench_val", documents)["most frequent answer"].scores["robust"]["accuracy"] == 0.4
    assert by_name("gmai_mmbench_val", documents) == by_name("gmai_mmbench_val", documents[::-1])


def test_scores_of_questions_are_those_of_recorded_replies(gmai):
    scored = score_replies(task_file("gmai_mmbench_val"), gmai, texts(gmai, lambda _: "B"))
    found = by_name("gmai_mmbench_val", gmai)
    assert list(found) == ["always A", "always B", "most frequent answer", "random answer"]  # all have two options
    for rule, scores in found["always B"].scores.items():
        assert scores == pytest.approx({name: scored[rule].estimates[name].value for name in scores}, nan_ok=True)
    assert found["always B"].scores["robust"]["accuracy"] == sum(one["answer"] == "B" for one in gmai) / len(gmai)


def test_most_frequent_among_questions_with_as_many_options(gmai):
    groups = {}
    for document in gmai:
        groups.setdefault(len(document["options"]), Counter())[document["answer"]] += 1
    right = sum(max(counts.values()) for counts in groups.values())
    for task in ("gmai_mmbench_val", "gmai_mmbench_val_ll"):
        for scores in by_name(task, gmai)["most frequent answer"].scores.values():
            assert scores["accuracy"] == pytest.approx(right / len(gmai))


def test_an_option_that_a_rule_cannot_read_has_no_score():
    """Of option A, "a", the reference's cleaner leaves no word: both are articles."""
    documents = [choice(n, "AB"[n % 2], options=2) for n in range(9)] + [{**choice(9, "A"), "options": ["a", "the"]}]
    found = by_name("multimedeval_mmlu", documents)
    assert no_score(found["always A"]) == {"reference"}
    assert found["always A"].describes.endswith(
        "No score under reference: it reads no reply as this answer for 1 of 10 questions."
    )
    assert found["always A"].scores["robust"]["accuracy"] == 0.6
    assert no_score(found["always B"]) == set()
    assert found["always B"].scores["reference"]["accuracy"] == 0.4


def test_several_right_options():
    documents = [
        {**choice(1, None), "answers": ["A", "C"]},
        {**choice(2, None), "answers": ["C"]},
        {**choice(3, None, options=2), "answers": ["B"]},
    ]
    found = by_name("gmai_mmbench_mcls", documents)
    scores = {name: one.scores["robust"] for name, one in found.items()}
    assert scores["all options"] == {"mcls_accuracy": pytest.approx(1.25 / 3), "mcls_recall": 1, "invalid_rate": 0}
    assert scores["most frequent answer"]["mcls_accuracy"] == 1
    assert scores["most frequent answer"]["mcls_recall"] == pytest.approx(2.5 / 3)
    assert scores["random answer"]["mcls_accuracy"] == pytest.approx(1.25 / 3)


def test_findings():
    documents = [
        {"doc_id": str(n), "image_id": str(n), "options": ["Mass", "Nodule", "Edema"], "labels": labels}
        for n, labels in enumerate([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]])
    ]
    found = by_name("multimedeval_chestxray14", documents)
    assert found["no finding"].scores["reference"]["macro_accuracy"] == 0.75
    assert found["all findings"].scores["robust"]["macro_accuracy"] == 0.25
    assert no_score(found["all findings"]) == {"reference"}
    assert found["all findings"].describes.endswith(
        "No score under reference: it reads no reply as this answer for 4 of 4 questions."
    )


def test_no_labeler_is_asked(monkeypatch):
    def load(*_):
        raise AssertionError("a labeler was asked")

    monkeypatch.setattr(family, "label_replies", load)
    monkeypatch.setattr(labeler, "label_replies", load)
    documents = [
        {"doc_id": "1", "options": ["Edema"], "labels": [1]},
        {"doc_id": "2", "options": ["Edema"], "labels": [0]},
    ]
    found = by_name("multimedeval_mimic_cxr_classification", documents)
    assert no_score(found["no finding"]) == {"reference"}
    assert found["no finding"].scores["robust"]["macro_accuracy"] == 0.5
    assert "it needs a labeler" in found["no finding"].describes


def test_classes():
    documents = [
        {"doc_id": str(n), "image_id": str(n), "options": ["cyst", "stone", "tumor"], "label": label}
        for n, label in enumerate([1, 1, 2, 1])
    ]
    found = by_name("multimedeval_bloodmnist", documents)
    assert list(found) == ["most frequent class", "random answer"]
    for scores in found["most frequent class"].scores.values():
        assert scores["balanced_accuracy"] == 0.5
        assert scores["macro_f1"] == pytest.approx((6 / 7) / 2)
    assert "macro_f1" not in found["random answer"].scores["robust"]  # its expectation has no formula


def open_questions(*answers):
    asked = {"yes": "Is there a mass?", "no": "Is there a stone?"}
    return [
        {"doc_id": str(n), "image_id": str(n), "question": asked.get(answer.lower(), "What is it?"), "answer": answer}
        for n, answer in enumerate(answers)
    ]


def test_open_questions():
    documents = open_questions("Yes", "no", "no", "The left lung", "left lung", "left lung", "CT")
    found = by_name("multimedeval_vqa_rad", documents)
    assert list(found) == ["always yes", "always no", "most frequent answer"]
    for rule in ("reference", "robust"):
        assert found["always yes"].scores[rule]["closed_accuracy"] == pytest.approx(1 / 3)
        assert found["always no"].scores[rule]["closed_accuracy"] == pytest.approx(2 / 3)
        assert found["always no"].scores[rule]["open_accuracy"] == 0
        assert found["most frequent answer"].scores[rule]["closed_accuracy"] == pytest.approx(2 / 3)
        assert found["most frequent answer"].scores[rule]["open_accuracy"] == 0.75
    assert list(by_name("multimedeval_vqa_rad", documents[3:])) == ["most frequent answer"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["medheval_visual_mm", "medheval_visual_mm_ll"])
def test_golden_closed_questions_of_medheval(test_data, task):
    folder = test_data / "medheval"
    if not folder.is_dir():
        pytest.skip(f"no published files in {folder}")
    prepare("medheval_visual_mm", Options(folder))
    documents = load_documents("medheval_visual_mm")
    assert len(documents) == 3610
    found = by_name(task, documents)
    assert not any(map(no_score, found.values()))
    reply = Reply(losses=(1.0, 2.0)) if task.endswith("_ll") else Reply(text="")
    scored = score_replies(task_file(task), documents, {one["doc_id"]: reply for one in documents})
    same = {"always yes": "always_yes", "always no": "always_no", "random answer": "random_choice"}
    for rule, recorded in scored.items():
        accuracies = {name: one.scores[rule]["accuracy"] for name, one in found.items()}
        for name, metric in same.items():
            assert accuracies[name] == pytest.approx(recorded.estimates[metric].value)
        assert (found["always yes"].scores[rule]["yes_rate"], found["always no"].scores[rule]["yes_rate"]) == (1, 0)
        assert max(accuracies, key=accuracies.get) == "most frequent answer"
    if "reference" in scored:
        published = [found[name].scores["reference"]["accuracy"] for name in ("always yes", "always no")]
        assert published == pytest.approx([0.3614, 0.4664], abs=5e-5)


def test_closed_questions_in_every_dialect(medheval, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(medheval))
    documents = load_documents("medheval_visual_mm")
    for task in ("medheval_visual_mm", "medheval_visual_mm_ll"):
        found = by_name(task, documents)
        assert list(found) == ["always yes", "always no", "most frequent answer", "random answer"]
        for one in found.values():
            assert not {"always_yes", "always_no", "random_choice", "unscored_rate"} & set(one.scores["strict"])
    keyed = [one for one in documents if one["answer"] is not None]
    best = Counter((one["kind"], len(one["options"]), one["answer"]) for one in keyed)
    right = {}
    for (kind, number, _), count in best.items():
        right[kind, number] = max(right.get((kind, number), 0), count)
    assert found["most frequent answer"].scores["strict"]["accuracy"] == sum(right.values()) / len(keyed)


def report(number, text):
    return {"doc_id": str(number), "image_id": str(number), "report": text, "indication": None, "context": None}


def test_the_most_frequent_report_by_metrics_that_count_words():
    normal = "The heart is normal . No effusion ."
    documents = [report(1, "Large mass ."), report(2, normal), report(3, normal), report(4, "Old rib fracture .")]
    found = by_name("iu_xray_report", documents)
    assert list(found) == ["most frequent report"]
    scores = found["most frequent report"].scores["reference"]
    assert set(scores) == {"bleu_1", "bleu_4", "rouge_l"}
    texts_of = {"references": [one["report"] for one in documents], "hypotheses": [normal] * 4}
    counted = {**report_metric("bleu")(**texts_of).totals, **report_metric("rouge")(**texts_of).totals}
    assert scores == {name: pytest.approx(counted[name]) for name in scores}
    assert normal not in str(found)
    assert by_name("iu_xray_report", documents[:2]) == {}


def test_rotated_questions_keep_no_letter_right(sample):
    documents = rotated(load_documents("mediconfusion"))
    for task in ("mediconfusion_rotated", "mediconfusion_gd_rotated"):
        found = by_name(task, documents)
        assert list(found) == ["always A", "always B", "random answer"]
        for scores in found["always A"].scores.values():
            assert (scores["mean_accuracy"], scores["worst_case"], scores["flip_rate"]) == (0.5, 0, 1)
            assert scores["invalid_rate"] == 0
    documents = load_documents("mediconfusion")  # other variants have those of their task
    assert by_name("mediconfusion_blind", blind(documents)) == by_name("mediconfusion", documents)


def test_nothing_of_a_credentialed_set_is_told_or_saved(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    secret = "Zanzibar"
    documents = [
        {**one, "dataset": "multimedeval_diff_vqa", "answer": one["answer"].replace("CT", secret)}
        for one in open_questions("yes", "CT", "CT", "MRI")
    ]
    found = baselines(task_file("multimedeval_diff_vqa"), documents)
    assert found[-1].scores["robust"]["open_accuracy"] == pytest.approx(2 / 3)
    nli = [
        {"doc_id": str(n), "image_id": None, "dataset": "multimedeval_mednli", "options": [secret, "y"], "answer": "A"}
        for n in range(3)
    ]
    told = json.dumps([dataclasses.asdict(one) for one in [*found, *baselines(task_file("multimedeval_mmlu"), nli)]])
    assert secret not in told
    assert "always A" in told
    assert not (tmp_path / FOLDER_NAME).exists()


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


def of_every_guess(task, documents, say=lambda document, index: "ABCD"[index]):
    """The mean of every metric over all combinations of options, as its family scores each."""
    found = {}
    for guesses in itertools.product(*(range(len(document["options"])) for document in documents)):
        replies = [Reply(text=say(d, index)) for d, index in zip(documents, guesses, strict=True)]
        for name, one in evaluate(task.metrics, scores_of(task, task.rows["robust"], documents, replies)).items():
            found.setdefault(name, []).append(float(one.value))
    return {metric: sum(values) / len(values) for metric, values in found.items()}


def expected_scores(task, documents):
    return task_file(task).family.expected_by_chance([Sample(document) for document in documents])


def check(task, documents, *metrics, **options):
    every, expected = of_every_guess(task_file(task), documents, **options), expected_scores(task, documents)
    assert set(expected) == {*metrics, "invalid_rate"}
    assert {name: every[name] for name in expected} == pytest.approx(expected)


ROTATED = ("mean_accuracy", "published_order", "worst_case", "flip_rate")
LEVELS = [
    choice(1, "A", 2, granularity="Image Level"),
    choice(2, "C", 3, granularity="image level"),
    choice(3, "B", 4, granularity="Contour Level"),
    choice(4, "B", 2, granularity=None),
]
SEVERAL = [
    {**choice(1, None, 4), "answers": ["A", "C", "D"]},
    {**choice(2, None, 2), "answers": ["B"]},
    {**choice(3, None, 3), "answers": ["A", "B"]},
]
TURNED = rotated([choice(1, "A", 2), choice(2, "C", 3)])
SEVERAL_TURNED = rotated([{**choice(1, None, 3), "answers": ["A", "C"]}])


@each_row(
    "task, documents, metrics",
    [
        ("mediconfusion", [*pair(1), *pair(2)], PAIRED),
        ("mediconfusion", [*pair(1), pair(2)[0]], PAIRED),
        ("mediconfusion", pair(1)[:1], ("individual_accuracy",)),
        ("mediconfusion", [pair(1)[0], pair(1, 3, "AC")[1]], PAIRED),
        ("gmai_mmbench_val", LEVELS, ("accuracy", "acc_image_level", "acc_contour_level")),
        ("gmai_mmbench_mcls", SEVERAL, ("mcls_accuracy", "mcls_recall")),
        ("gmai_mmbench_val_rotated", TURNED, ROTATED),
        ("gmai_mmbench_val_rotated", TURNED[:1], ROTATED[:2]),
        ("gmai_mmbench_val_rotated", TURNED[1:2], ROTATED[:1]),
        ("gmai_mmbench_mcls_rotated", SEVERAL_TURNED, ROTATED),
    ],
)
def test_guesses(task, documents, metrics):
    check(task, documents, *metrics)


def test_guesses_without_a_formula():
    for task, further in (
        ("multimedeval_vqa_rad", {"answer": "left lung"}),
        ("multimedeval_chestxray14", {"options": ["Edema", "Mass"], "labels": [0, 1]}),
        ("medheval_visual_mm", {"options": ["Yes", "No"], "choices": "", "kind": "binary", "answer": "A"}),
        ("gmai_mmbench_val", {"options": ["x", "y"], "answer": None}),
    ):
        assert expected_scores(task, [{"question": "?", **further}]) == {}
    one_class = [{"doc_id": str(n), "options": ["cyst", "stone"], "label": 1} for n in range(3)]
    expected = {"invalid_rate": 0, "balanced_accuracy": 0.5, "macro_auroc": 0}
    assert expected_scores("multimedeval_bloodmnist", one_class) == expected


@each_row("labels", [[0, 1, 2], [0, 0, 1], [0, 2, 2, 2]])
def test_guessed_classes(labels):
    documents = [
        {"doc_id": str(n), "image_id": str(n), "options": ["cyst", "stone", "tumor"], "label": label}
        for n, label in enumerate(labels)
    ]
    names = ("balanced_accuracy", "macro_auroc", "present_class_auroc")
    check("multimedeval_bloodmnist", documents, *names, say=lambda document, index: document["options"][index])


def test_the_best_constant_is_tested_against_the_run_question_by_question(sample_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))
    task, documents = task_file("mediconfusion"), load_documents("mediconfusion")
    replies = {one["doc_id"]: Reply.of_text("AB"[place % 3 == 0]) for place, one in enumerate(documents)}
    replies[documents[0]["doc_id"]] = Reply.of_text(failed_reply("no memory"))
    rows = rows_of(task, documents, replies)
    of_run = {name: dict(zip(replies, scores, strict=True)) for name, (_, scores) in rows.items()}
    found = baselines(task, documents, of_run)
    tested = {row: (one.name, *test) for one in found for row, test in one.tests.items()}
    assert tested.keys() == task.rows.keys()
    for row, (constant, metric, test) in tested.items():
        assert metric == "individual_accuracy"  # constants solve no pair
        values = {one.name: one.scores[row][metric] for one in found if one.name != "random answer"}
        assert values[constant] == max(values.values())
        assert test.samples == 31  # one has no reply
        answered = {doc_id: reply for doc_id, reply in replies.items() if not reply.failed}
        assert test.second == score_replies(task, documents, answered)[row].categories[TOTAL].individual_accuracy
    assert all(one.tests == {} for one in baselines(task, documents))
