"""Every published hook has its family, which the page for people names, and whose metrics declare themselves."""

import contextlib
import re
from pathlib import Path

from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Asks, Reply, Row, TaskFamily
from medtasks.metrics.metric import Scale, undeclared
from medtasks.tasks.hook_names import HOOKS, families, family_of
from medtasks.tasks.task_files import task_files

from ..tables import each_row
from ..task_families import FAMILIES

HIDDEN = ("grouped_choice", "submission", "kit_submission", "rotated_choice", "rotated_classes", "rotated_multi_answer")
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
            one.family.score(Sample(document), Reply(reply), Row(one.rules[0]))
    assert bool(asked) == (one.family.asks is not Asks.NOBODY)


RAW = re.compile("cider|radcliq|bertscore|roberta_large|similarity|hallucination_score")
COUNT = re.compile(
    "^(answers|mentions|reports|submission|incomplete|failed|scored|unjudged)_|possible_injection|_(decided)$"
)


def test_every_metric_declares_its_scale_and_a_sentence():
    tasks = [task for task in task_files().values() if task.kind == "task" and not task.only_harness]
    metrics = {one for task in tasks for one in (*task.family.metrics, *task.family.compared_only)}
    assert len(metrics) > 80
    for metric in metrics:
        is_count = COUNT.search(metric.name) or metric.name == "positives_label"
        expected = Scale.RAW if RAW.search(metric.name) else Scale.COUNT if is_count else Scale.SHARE
        assert (metric.name, metric.scale) == (metric.name, expected)
        assert re.fullmatch(r"[A-Z].{8,110}\.", metric.description), metric
    assert undeclared("accuracy").scale is Scale.RAW
