"""Every published hook has its family, which the page for people names, and whose metrics declare themselves."""

import contextlib
import re
from pathlib import Path

from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Asks, Reply, Rule, TaskFamily
from medtasks.families.family_registry import HOOKS, NAMED, families, family_of, modules
from medtasks.metrics.metric import Scale, undeclared
from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import DottedName

from ..tables import each_row
from ..task_families import FAMILIES

_MODULES = [f"{HOOKS}{module}.process_results" for module in sorted(modules())]
PUBLISHED = list(dict.fromkeys([*(f"{HOOKS}{name}" for name in NAMED), *filter(family_of, _MODULES)]))
PAGE = (Path(__file__).parents[2] / "docs" / "own_tasks.md").read_text(encoding="utf-8")


@each_row("hook", PUBLISHED)
def test_every_hook_has_a_family_and_its_rule(hook):
    assert callable(DottedName(hook).resolve())
    family = family_of(hook)
    assert isinstance(family, TaskFamily)
    if hook == f"{HOOKS}free_form.process_results":
        assert (family.extractor, family.asks) == (None, Asks.JUDGE)
    else:
        assert extractor_of(family.extractor, family.kind).name == family.extractor


def test_hooks_of_our_tasks_have_a_family_and_others_have_none():
    assert family_of("medtasks.hooks.choice.prompt") is None
    assert family_of("my_package.process_results") is None
    rotated = {family.rotated for family in families().values() if family.rotated}
    assert set() < rotated <= set(PUBLISHED)
    used = {str(task.process_results) for task in task_files().values() if task.kind == "task"}
    assert used <= set(PUBLISHED)
    assert all(task.only_harness == "" for task in task_files().values() if task.kind == "task")


def test_the_page_names_families_and_their_columns():
    table = re.search(r"\| family \|.*?\n\n", PAGE, re.DOTALL)[0]
    rows = [row for row in table.splitlines()[2:] if row and "BLEU option" not in row]
    printed = {row.split("|")[3].strip(" `"): row for row in rows}
    for hook in PUBLISHED:
        family, room = family_of(hook), hook.split(".")[2]
        if "judge" in family.name or room in ("grouped_choice", "submission", "kit_submission", "rotations"):
            continue
        row = printed[room]
        assert family.name in row
        columns = family.short or family.columns
        named = row + printed["choice"] if "the same" in row else row
        assert [name for name in columns if f"`{name}`" not in named] == []


@each_row("one", FAMILIES.values())
def test_a_family_says_whether_it_asks_a_judge(one, monkeypatch):
    """The doctor, the guards of a run and ``score`` rely on it."""
    asked = []

    def judge(*_):
        asked.append(one.hook)
        raise MedTasksError("a judge was asked")

    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    monkeypatch.setattr("medtasks.judges.judge_client._judge", judge)
    for document, reply in zip(one.documents, one.replies, strict=True):
        with contextlib.suppress(MedTasksError):
            one.family.score(Sample(document), Reply(reply), Rule(one.rules[0]))
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
