"""What holds in every task family: its metrics, their errors, and which samples are in no metric."""

import itertools
import json
import math
import pickle
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from openpyxl import load_workbook

from medtasks.data.samples import Sample
from medtasks.errors import UnknownName
from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.extract.failure import cut_reply
from medtasks.families.kit_questions import protocol_of
from medtasks.home import home
from medtasks.lmms.filters import ChooseWith, ReadWith
from medtasks.metrics.medevalkit_texts import MEASURES
from medtasks.metrics.metric import CorpusMetric, with_image_clusters

from ..tables import each_row
from ..task_families import (
    CASES,
    FAILURES,
    FAMILIES,
    LOST,
    UNREADABLE,
    WITH_LIKELIHOODS,
    MadeUp,
    install_stand_ins,
    kept,
    losses,
    score_of,
    values_of,
    with_lost,
)

BAD_LIKELIHOODS = {"nan": (math.nan, False), "nan_as_text": "(nan, False)", **FAILURES}
COUNTS = ("scored_samples", "failed_samples", "unjudged_samples")
every_case = each_row(("one", "rule"), CASES.values())
every_family = each_row("one", FAMILIES.values())
with_likelihoods = each_row("one", [FAMILIES[name] for name in WITH_LIKELIHOODS])


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that judge, labeler and text metrics were given."""
    return install_stand_ins(monkeypatch)


def texts(rule: str | None, replies: Sequence[Any]) -> list[list[Any]]:
    """What the harness hands to ``process_results`` for each reply."""
    if rule is None:
        return [[reply] for reply in replies]
    return [[result] for result in ReadWith(rule).apply([[reply] for reply in replies], None)]


def likelihoods(rule: str | None, given: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [
        list(one)
        if rule is None
        else ChooseWith(rule).apply([[option] for option in one], None)
        for one in given
    ]


def samples(
    one: MadeUp, results: Sequence[Sequence[Any]], documents: Any = None
) -> list[Mapping[str, Any]]:
    return [
        one.process(doc, given)
        for doc, given in zip(documents or one.documents, results, strict=True)
    ]


def values(
    one: MadeUp, results: Sequence[Sequence[Any]], documents: Any = None
) -> dict[str, Any]:
    """Every metric by name, None where it is NaN."""
    made = samples(one, results, documents)
    found = {
        entry["metric"]: entry["aggregation"]([each[entry["metric"]] for each in made])
        for entry in one.metrics
    }
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def scores_of(one: MadeUp, rule: str | None) -> list[dict[str, Any]]:
    """The score of each sample."""
    return [
        dict(scored.items())[one.metrics[0]["metric"]]
        for scored in samples(one, texts(rule, one.replies))
    ]


def scores(found: Mapping[str, Any], *also_not: str) -> dict[str, Any]:
    """The metrics without the numbers of samples, and without the rows of a file that has one for every sample."""
    return {
        name: value
        for name, value in found.items()
        if name not in (*COUNTS, "submission_rows", *also_not)
    }


def counts(found: Mapping[str, Any]) -> list[Any]:
    return [found.get(name, 0) for name in COUNTS]


def are_undefined(found: Mapping[str, Any]) -> bool:
    """Whether there is no score: numbers of things may be 0, of which there are none."""
    kinds = [
        type(value) for value in scores(found).values() if value != 0 or type(value) is not int
    ]
    return set(kinds) == {type(None)}


# ---- metrics ----


@every_family
def test_names_of_metrics(one):
    """The harness finds a metric by a part of its name, and shows ``<name>_stderr`` beside the one before it."""
    names = [entry["metric"] for entry in one.metrics]
    assert len(set(names)) == len(names)
    own = [name for name in names if not name.endswith("_stderr")]
    assert not [(a, b) for a, b in itertools.permutations(own, 2) if a in b]
    errors = [name for name in names if name.endswith("_stderr")]
    assert all(names[names.index(name) - 1] == name.removesuffix("_stderr") for name in errors)
    assert [entry["aggregation"].__name__ for entry in one.metrics] == names
    place = names.index("scored_samples")  # the numbers of samples stand last, without errors
    assert names[place + 1] == "failed_samples"
    assert set(names[place + 2 :]) <= {"unjudged_samples", "possible_injection"}


@every_case
def test_the_rule_is_the_rows_and_else_the_family_s(one, rule):
    doc, reply = one.documents[1], one.replies[1]
    assert rule is None or score_of(one.family, doc, reply, rule)["rule"] == rule
    assert score_of(one.family, doc, reply) == score_of(
        one.family, doc, reply, one.family.extractor
    )


@each_row("name", [name for name in FAMILIES if name != "free_form"])
def test_a_rule_of_another_kind_is_refused(name):
    one = FAMILIES[name]
    other = "robust_labels" if one.family.kind is AnswerKind.CHOICE else "robust_choice"
    with pytest.raises(UnknownName, match=other):
        score_of(one.family, one.documents[0], one.replies[0], other)


LOWER = re.compile(
    "rate(?!_score)|confusion|chair|hallucination_score|radcliq|failed|unjudged|incomplete|injection|_stderr$"
)
NEITHER = re.compile(
    r"yes_rate|always_|random_choice|scored_samples|submission_rows|answers_|mentions_|positives_|negatives_|labels_decided|reports_"
)


@every_family
def test_only_what_is_missing_or_wrong_and_errors_are_better_when_lower(one):
    for entry in one.metrics:
        name = entry["metric"]
        expected = (
            None
            if NEITHER.match(name) and not name.endswith("_stderr")
            else not LOWER.search(name)
        )
        assert entry["higher_is_better"] is expected, name


@every_case
def test_one_score_stands_under_every_metric(one, rule):
    for sample in samples(one, texts(rule, one.replies)):
        assert [name for name, _ in sample.items()] == [
            entry["metric"] for entry in one.metrics
        ]
        (score,) = {id(score): score for _, score in sample.items()}.values()
        assert all(sample[name] is score for name, _ in sample.items())
        assert set(sample) == {"score"}
        written: dict[str, Any] = {}
        written.update(sample)  # as the harness does
        asked = written["score"].pop("fingerprint")
        assert all(
            re.fullmatch("[0-9a-f]{8}", digest)
            for name, digest in asked.items()
            if name != "images"
        )
        assert written["score"] == {
            "schema_version": 2,
            **json.loads(json.dumps(score, default=str)),
        }
        assert pickle.loads(pickle.dumps(score)) == score


@every_case
def test_neither_order_nor_ranks_nor_the_way_matter(one, rule):
    """The harness asks for each metric alone; commands evaluate the family's metrics."""
    made = scores_of(one, rule)
    whole = values_of(one.family, made)
    other_ranks = pickle.loads(pickle.dumps(made[1::2])) + made[::2]
    for scores in (random.Random(3).sample(made, 12), other_ranks):
        assert repr(values_of(one.family, scores)) == repr(whole)
    assert repr({entry["metric"]: entry["aggregation"](made) for entry in one.metrics}) == repr(
        whole
    )


@every_family
def test_of_nothing_metrics_are_nan_and_counts_0(one):
    found = {entry["metric"]: entry["aggregation"]([]) for entry in one.metrics}
    assert all(value == 0 or math.isnan(value) for value in found.values())
    assert all(found[name] == 0 for name in COUNTS if name in found)
    counted = {metric.name for metric in one.family.metrics if not metric.has_error}
    assert {name for name, value in found.items() if value == 0} <= counted


ALONE = {
    name: case
    for name, case in CASES.items()
    if not name.startswith(("pairs", "free_form", "rotations"))
}


@each_row(("one", "rule"), ALONE.values())
def test_samples_of_a_cluster_that_agree_carry_as_much_as_one(one, rule):
    once = [
        {**score, "cluster_id": f"patient-{n}"} for n, score in enumerate(scores_of(one, rule))
    ]
    thrice = [score for score in once for _ in range(3)]
    apart = [{**score, "cluster_id": f"doc-{n}"} for n, score in enumerate(thrice)]
    alone, together, independent = (
        values_of(one.family, scores) for scores in (once, thrice, apart)
    )
    # what published code divides by the number of samples depends on it
    divided = rule is not None and protocol_of(rule).divides_twice
    errors = [
        name
        for name in alone
        if name.endswith("_stderr") and not (divided and name.startswith("acc_open"))
    ]
    assert [together[name] for name in errors] == pytest.approx(
        [alone[name] for name in errors], nan_ok=True
    )
    assert all(independent[name] < together[name] for name in errors if together[name] > 0)
    assert any(alone[name] > 0 for name in errors)
    of_one = values_of(one.family, [{**score, "cluster_id": "patient-1"} for score in once])
    assert all(math.isnan(of_one[name]) for name in errors)


def shared_between_patients(one: MadeUp) -> list[dict[str, Any]]:
    """Documents of as many patients as questions or pairs, of whom the first two share an image."""
    documents = [{**doc, "unit_id": None} for doc in one.documents]
    questions = list(
        dict.fromkeys(
            doc.get("pair_id") or doc.get("rotation_of") or doc["doc_id"] for doc in documents
        )
    )
    numbers = [
        questions.index(doc.get("pair_id") or doc.get("rotation_of") or doc["doc_id"])
        for doc in documents
    ]
    return [
        {**doc, "patient_id": f"p{n}", "image_id": "atlas" if n < 2 else f"i{n}"}
        for doc, n in zip(documents, numbers, strict=True)
    ]


@every_family
def test_patients_that_share_an_image_are_one_cluster_of_errors_and_of_tests(one):
    """Errors are those of documents whose patients were joined by hand, and tests take the same clusters."""
    documents = shared_between_patients(one)
    by_hand = [
        {**doc, "patient_id": "p0" if doc["image_id"] == "atlas" else doc["patient_id"]}
        for doc in documents
    ]
    found, expected, without = (
        [
            score_of(one.family, doc, reply, one.family.extractor)
            for doc, reply in zip(docs, one.replies, strict=True)
        ]
        for docs in (documents, by_hand, [{**doc, "image_id": None} for doc in documents])
    )
    values = [values_of(one.family, scores) for scores in (found, expected)]
    assert values[0] == pytest.approx(values[1], nan_ok=True)
    assert (
        len({score["cluster_id"] for score in with_image_clusters(found)})
        == len({doc["patient_id"] for doc in documents}) - 1
    )
    assert len({score["cluster_id"] for score in with_image_clusters(without)}) == len(
        {doc["patient_id"] for doc in documents}
    )
    of_tests = one.family.independent_clusters([Sample(doc) for doc in documents])
    of_errors = [score["cluster_id"] for score in with_image_clusters(found)]
    assert (
        len(set(zip(of_tests, of_errors, strict=True)))
        == len(set(of_tests))
        == len(set(of_errors))
    )


# ---- failed samples ----


@each_row("failures", [[*FAILURES.values()][:3], [*FAILURES.values()][3:]])
@every_case
def test_metrics_are_those_of_the_other_samples(one, rule, failures, asked):
    found = values(one, texts(rule, with_lost(one.replies, *failures)))
    assert not [
        text
        for text in asked
        if "[[" in text or "LMMS" in text or "SAFETY" in text or "concatenate" in text
    ]
    expected = values(one, texts(rule, kept(one.replies)), kept(one.documents))
    assert scores(found) == scores(expected)
    assert (counts(found), counts(expected)) == ([8, 4, 0], [8, 0, 0])
    assert any(value is not None and value > 0 for value in scores(expected).values())


@every_case
def test_failed_samples_alone_have_no_score(one, rule, asked):
    found = values(one, texts(rule, [*FAILURES.values()] * 2))
    assert are_undefined(found)
    assert counts(found) == [0, 12, 0]
    assert found.get("submission_rows", 12) == 12
    assert asked == []


def test_failed_rows_of_a_submission_are_blank():
    one = FAMILIES["submission"]
    values(one, texts("robust_choice", with_lost(one.replies, *FAILURES.values())))
    (path,) = (home() / "submissions" / "mediconfusion").glob("*.xlsx")
    header, *rows = load_workbook(path).active.iter_rows(values_only=True)
    cells = [(row[header.index("prediction")], row[header.index("option")]) for row in rows]
    assert [n for n, cell in enumerate(cells) if cell == (None, None)] == sorted(
        {*LOST, one.replies.index("")}
    )


@each_row("rule", [None, *extractors(AnswerKind.LIKELIHOODS)])
@with_likelihoods
def test_failed_likelihoods_are_in_no_metric(one, rule):
    given = [[(loss, False) for loss in options] for options in losses(one)]
    expected = values(one, likelihoods(rule, kept(given)), kept(one.documents))
    bad = [*BAD_LIKELIHOODS.values()]
    for some in (bad[:4], bad[4:]):
        mixed = [
            [*options[:-1], some[LOST.index(n) % len(some)]] if n in LOST else options
            for n, options in enumerate(given)
        ]
        found = values(one, likelihoods(rule, mixed))
        assert scores(found) == scores(expected)
        assert (counts(found), counts(expected)) == ([8, 4, 0], [8, 0, 0])
    alone = values(
        one,
        likelihoods(
            rule, [[bad[n % len(bad)]] * len(options) for n, options in enumerate(given)]
        ),
    )
    assert are_undefined(alone)
    assert counts(alone) == [0, 12, 0]


# ---- replies that the server cut ----


@every_case
def test_a_mark_of_a_cut_reply_changes_no_metric(one, rule):
    whole, cut = (
        texts(rule, one.replies),
        texts(rule, [cut_reply(reply) for reply in one.replies]),
    )
    for before, after in zip(samples(one, whole), samples(one, cut), strict=True):
        for metric, score in before.items():
            unsaid = score["reason"] in ("empty", "no_match", "ambiguous")
            expected = {
                **score,
                "reason": "truncated" if unsaid else score["reason"],
                "cut": True,
            }
            assert after[metric] | {"saved": None} == expected | {"saved": None}
    assert values(one, cut) == values(one, whole)


# ---- replies that nobody judged ----

BY_JUDGES = (
    *(
        "free_form",
        "judged_choice",
        "judged_questions",
        "knowledge_hallucination",
        "visual_hallucination",
    ),
    "multilabel-chexbert",
)
JUDGED = {name: case for name, case in CASES.items() if name.startswith(BY_JUDGES)}


def by_verdict(one: MadeUp, found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that need a verdict; where texts are compared as well, the invalid rate is of all replies."""
    corpus = {
        metric.name
        for metric in one.family.metrics
        if isinstance(metric, CorpusMetric) and metric.panel
    }
    compared = (
        {name for name in corpus if not name.startswith("chair_judge")}
        if "hallucination" in one.module
        else set()
    )
    if compared:
        compared.add("invalid_rate")
    if one.module.startswith("judged_questions"):
        compared |= {"exact_match", *MEASURES}
    of_all = {name for key in compared for name in (key, f"{key}_stderr")}
    return {
        name: value
        for name, value in scores(found, *of_all).items()
        if not name.startswith("judge_")
    }


@each_row(("one", "rule"), JUDGED.values())
def test_replies_without_a_verdict_are_in_no_metric_that_needs_one(one, rule):
    found = values(one, texts(rule, with_lost(one.replies, UNREADABLE)))
    expected = values(one, texts(rule, kept(one.replies)), kept(one.documents))
    assert (counts(found), counts(expected)) == ([8, 0, 4], [8, 0, 0])
    assert (found["judge_failed_rate"], expected["judge_failed_rate"]) == (4 / 12, 0)
    assert by_verdict(one, found) == by_verdict(one, expected)


@each_row("silent", ["", cut_reply("")])
@each_row(("one", "rule"), JUDGED.values())
def test_replies_that_say_nothing_do_not_stand_for_those_that_nobody_judged(one, rule, silent):
    found = values(one, texts(rule, [UNREADABLE, silent, FAILURES["request"]] * 4))
    assert are_undefined(by_verdict(one, found))
    assert found["judge_failed_rate"] == 0.5
    assert counts(found) == [4, 4, 4]
