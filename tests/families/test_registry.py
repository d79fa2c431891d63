"""Every published hook has its family, which the page for people names, and whose metrics declare themselves."""

import contextlib
import json
import math
import re
from pathlib import Path

from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Asks, Reply, Rule, TaskFamily, compares_texts
from medtasks.metrics.metric import Role, Scale, evaluate, raw_declaration
from medtasks.tasks.hook_names import HOOKS, families, family_of
from medtasks.tasks.task_files import task_files

from ..tables import each_row
from ..task_families import FAILURES, FAMILIES, install_stand_ins, score_of

HIDDEN = (
    "grouped_choice",
    "submission",
    "kit_submission",
    "rotated_choice",
    "rotated_classes",
    "rotated_multi_answer",
)
"""Modules of families that are for sets of ours alone."""
PAGE = (Path(__file__).parents[2] / "docs" / "own_tasks.md").read_text(encoding="utf-8")


@each_row("module", sorted(families()))
def test_every_family_has_its_rule(module):
    family = families()[module]
    assert isinstance(family, TaskFamily)
    if module == "free_form":
        assert (family.extractor, family.asks) == (None, Asks.JUDGE)
    else:
        assert extractor_of(family.extractor, family.kind).name == family.extractor


def test_hooks_of_our_tasks_have_a_family_and_others_have_none():
    assert family_of("medtasks.hooks.prompts.question") is None
    assert family_of("my_package.process_results") is None
    rotated = {family.rotated for family in families().values() if family.rotated}
    assert set() < rotated <= {*families()}
    used = {str(task.process_results) for task in task_files().values() if task.kind == "task"}
    assert used <= {f"{HOOKS}{module}.process_results" for module in families()}
    assert all(task.only_harness == "" for task in task_files().values() if task.kind == "task")


def test_the_page_names_families_and_their_columns():
    table = re.search(r"\| family \|.*?\n\n", PAGE, re.DOTALL)[0]
    rows = [row for row in table.splitlines()[2:] if row and "BLEU option" not in row]
    printed = {re.sub(r"\[(.*)\].*", r"\1", row.split("|")[1].strip()): row for row in rows}
    for module, family in families().items():
        is_shared = type(family).__module__.startswith("medtasks.families.")
        if "judge" in family.name or module in HIDDEN or not is_shared:
            continue
        row = printed[family.name]
        columns = family.short or family.columns
        named = row + printed["single choice"] if "the same" in row else row
        assert [name for name in columns if f"`{name}`" not in named] == []


@each_row("one", FAMILIES.values())
def test_a_family_says_whether_it_asks_a_judge(one, monkeypatch):
    """The doctor, the guards of a run and ``score`` rely on it."""
    asked = []

    def judge(*_):
        asked.append(one.module)
        raise MedTasksError("a judge was asked")

    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    monkeypatch.setattr("medtasks.judges.judge_client._judge", judge)
    for document, reply in zip(one.documents, one.replies, strict=True):
        with contextlib.suppress(MedTasksError):
            one.family.score(Sample(document), Reply(reply), Rule(one.rules[0]))
    assert bool(asked) == (one.family.asks is not Asks.NOBODY)


def declared_metrics():
    """Return every metric of every family, those for comparisons alone included."""
    families = [task.family for task in task_files().values() if task.kind == "task"]
    families += [one.family for one in FAMILIES.values()]
    return {
        metric for family in families for metric in (*family.metrics, *family.compared_only)
    }


def test_every_metric_declares_a_sentence_a_direction_and_one_scale():
    metrics = declared_metrics()
    scales = {metric.name: metric.scale for metric in metrics}
    assert len(scales) > 80
    for metric in metrics:
        assert re.fullmatch(r"[A-Z].{8,110}\.", metric.description), metric
        assert metric.scale is scales[metric.name], metric
        if metric.scale is Scale.COUNT:  # of samples, not of a quality: nothing to compare
            assert (metric.role, metric.has_error) == (Role.ASIDE, False), metric
            assert not metric.higher_is_better, metric
        elif metric.higher_is_better is None and not metric.of_questions:
            assert metric.has_error, metric  # or it is a count
        if metric.role is Role.MAIN:
            assert (metric.scale, metric.higher_is_better, metric.has_error) == (
                Scale.SHARE,
                True,
                True,
            ), metric
        if metric.is_compared and metric.role is Role.PART:
            assert metric.higher_is_better is not None, metric
    assert raw_declaration("accuracy").scale is Scale.RAW


@each_row("one", FAMILIES.values())
def test_values_keep_to_the_scale_that_their_metric_declares(one, monkeypatch):
    install_stand_ins(monkeypatch)
    own = [
        metric for metric in one.family.metrics if not compares_texts(metric)
    ]  # what others compute is stood in for
    for replies in (one.replies, [FAILURES["marked"]] * len(one.documents)):
        scores = [
            score_of(one.family, *pair, one.rules[0])
            for pair in zip(one.documents, replies, strict=True)
        ]
        for name, estimate in evaluate(own, one.family.final_scores(scores)).items():
            value, scale = estimate.value, one.family.metric(name).scale
            if scale is Scale.COUNT:
                assert value == int(value) >= 0, name
            elif scale is Scale.SHARE and not math.isnan(value):
                assert 0 <= value <= 1, name


def test_metrics_of_texts_are_no_shares_where_published_values_are_none(golden):
    lines = (golden / "metrics" / "radcliq.jsonl").read_text(encoding="utf-8").splitlines()
    radcliq = [json.loads(line) for line in lines]
    pairs = json.loads(
        (golden / "metrics" / "bertscore" / "expected.json").read_text(encoding="utf-8")
    )["pairs"]
    corpora = (
        (golden / "reports" / "cider" / "corpora.jsonl").read_text(encoding="utf-8").split("\n")
    )
    published = {
        "radcliq_v0": [case["v0"] for case in radcliq],
        "radcliq_v1": [case["v1"] for case in radcliq],
        "bertscore_f1": [pair["no_idf_rescaled"][2] for pair in pairs],
        "idf_bertscore_f1": [pair["idf_references_rescaled"][2] for pair in pairs],
        "cider_coco_reference": [
            json.loads(line)["cider_standin"].get("mean") or 0 for line in corpora if line
        ],
    }
    scales = {metric.name: metric.scale for metric in declared_metrics()}
    for name, values in published.items():
        assert min(values) < 0 or max(values) > 1, name
        assert scales[name] is Scale.RAW, name
