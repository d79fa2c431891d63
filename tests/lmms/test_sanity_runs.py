"""Whole runs of sanity variants: by name and by tag, with every kind of task, and without a word of a record."""

import functools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from medtasks.audit.scoring import PAIR_METRICS, score_replies
from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError
from medtasks.runs.replies import read_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_config, task_file, variants_of
from medtasks.tasks.task_index import resolved

from .. import tiny_multimedeval
from ..model_adapters.test_two_processes import checkpoints, home_with_demonstrations
from ..processes import run_here
from ..tables import each_row
from .whole_runs import answering, harness

__all__ = ["checkpoints", "home_with_demonstrations"]  # fixtures

pytestmark = pytest.mark.slow

MC, GD = "mediconfusion", "mediconfusion_gd"
TASKS = [name for base in (MC, GD) for name in (base, *(f"{base}_{variant}" for variant in VARIANTS))]
PAIRS, QUESTIONS = 16, 32
TINY = {"batch_size": 8, "device": "cpu", "gen_kwargs": "max_new_tokens=4", "log_samples": True}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, sample_home: Path) -> Path:
    """Results of ``medtasks run`` of two tags on the drawn sample, with a journal that all tasks share."""
    folder = tmp_path_factory.mktemp("finished")
    command = [
        *(sys.executable, "-m", "medtasks.cli.main", "run", "--tasks", f"{MC}_sanity,{GD}_sanity"),
        *("--model", "medtasks_tiny", "--model_args", f"journal={folder / 'journal'}", "--device", "cpu"),
        *("--batch_size", "8", "--gen_kwargs", "max_new_tokens=4", "--log_samples", "--output_path", str(folder)),
    ]
    ran = run_here(command, folder, MEDTASKS_HOME=str(sample_home))
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    return folder


@pytest.fixture(scope="module")
def results(finished: Path) -> Mapping[str, Any]:
    (file,) = finished.rglob("*_results.json")
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def losses(finished: Path, sample_home: Path) -> dict[str, dict[str, tuple[float, ...]]]:
    """Losses of GD by task and document."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(sample_home))
        for task in TASKS[len(TASKS) // 2 :]:
            (file,) = finished.rglob(f"*_samples_{task}.jsonl")
            replies = read_replies(file, task_documents(task_file(task)))
            found[task] = {name: reply.losses or () for name, reply in replies.items()}
    return found


def in_this_process(tasks: Sequence[str], model: Any = "medtasks_tiny", **options: Any) -> dict[str, Any]:
    return harness().simple_evaluate(model=model, tasks=list(tasks), task_manager=manager(), **options)


@functools.cache
def manager() -> Any:
    """The harness's task index, which takes seconds to read."""
    harness()
    from lmms_eval.tasks import TaskManager

    return TaskManager()


def metric_names(task: str) -> list[str]:
    return [entry["metric"] for entry in resolved(task_config(task)["metric_list"])]


def test_tags_run_the_task_and_its_variants(results):
    assert set(results["results"]) == set(TASKS)
    for task in TASKS:
        asked = 2 * QUESTIONS if task.endswith("_rotated") else QUESTIONS
        assert results["n-samples"][task]["effective"] == asked
        metadata = results["configs"][task]["metadata"]
        variant = task_file(task).variant
        assert (metadata.get("variant"), metadata.get("base")) == (variant, task_file(task).base)
        assert results["results"][task]["alias"] == f"{task} [SAMPLE DATA]"


def test_without_the_image_both_questions_of_a_pair_are_one(results, losses):
    for variant in ("blind", "blank"):
        found = losses[f"{GD}_{variant}"]
        assert len(found) == QUESTIONS
        for pair in {name.partition("/")[0] for name in found}:
            assert found[f"{pair}/1"] == pytest.approx(found[f"{pair}/2"], rel=1e-5)
        assert results["results"][f"{GD}_{variant}"]["confusion,reference"] == 1
        assert results["results"][f"{GD}_{variant}"]["set_accuracy,reference"] == 0
    assert losses[f"{GD}_blind"] != losses[f"{GD}_blank"] != losses[GD]


def test_swapped_questions_see_the_other_image(results, losses):
    for name, found in losses[f"{GD}_swapped"].items():
        pair, _, position = name.partition("/")
        assert found == pytest.approx(losses[GD][f"{pair}/{3 - int(position)}"], rel=1e-5)
    assert losses[f"{GD}_swapped"] != losses[GD]
    shares = [results["results"][task]["individual_accuracy,reference"] for task in (GD, f"{GD}_swapped")]
    assert sum(shares) == 1  # of a pair, one question's right option is the other's wrong one


def test_rotation_zero_is_the_published_order(results, losses):
    found = losses[f"{GD}_rotated"]
    for name, published in losses[GD].items():
        assert found[f"{name}~r0"] == pytest.approx(published, rel=1e-5)
    rotated, published = results["results"][f"{GD}_rotated"], results["results"][GD]
    assert rotated["published_order,reference"] == published["individual_accuracy,reference"]
    assert rotated["incomplete_rotations,reference"] == 0
    answers = {
        name: [("A", "B")[pair[0] > pair[1]] for pair in (found[f"{name}~r0"], found[f"{name}~r1"][::-1])]
        for name in losses[GD]
    }
    key = {one["doc_id"]: one["answer"] for one in task_documents(task_file(GD))}
    right = [[answer == key[name] for answer in pair] for name, pair in answers.items()]
    assert rotated["mean_accuracy,robust"] == sum(map(sum, right)) / (2 * QUESTIONS)
    assert rotated["worst_case,robust"] == sum(map(all, right)) / QUESTIONS
    assert rotated["flip_rate,robust"] == sum(first != second for first, second in answers.values()) / QUESTIONS


@pytest.fixture(autouse=True)
def _sample(sample_home, _own_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))


@each_row("name", TASKS)
def test_recorded_replies_score_as_the_harness_scored_them(finished, results, name):
    task, scored = task_file(name), results["results"][name]
    documents = task_documents(task)
    (file,) = finished.rglob(f"*_samples_{name}.jsonl")
    replies = read_replies(file, documents)
    assert len(replies) == len(documents)
    if task.variant == "rotated":
        for rule, found in score_replies(task, documents, replies).items():
            for metric, one in found.estimates.items():
                assert one.value == pytest.approx(scored[f"{metric},{rule}"], nan_ok=True)
                if one.has_error:
                    assert one.error == pytest.approx(scored[f"{metric}_stderr,{rule}"], nan_ok=True)
        return
    for rule, pairs in score_replies(task, documents, replies).items():
        for metric in PAIR_METRICS:
            value = getattr(pairs.categories["total"], metric)
            assert value == pytest.approx(scored[f"{metric},{rule}"], nan_ok=True)


def test_a_shared_journal_replays_nothing_of_another_variant(finished):
    anew = in_this_process(TASKS, model_args="journal=false", **TINY)["samples"]
    for task in TASKS:
        (file,) = finished.rglob(f"*_samples_{task}.jsonl")
        lines = map(json.loads, file.read_text().splitlines())
        assert [(line["doc_id"], line["score"]) for line in lines] == [
            (sample["doc_id"], json.loads(json.dumps(sample["score"]))) for sample in anew[task]
        ]
    assert len({repr([sample["resps"] for sample in anew[task]]) for task in TASKS}) == len(TASKS)


def test_a_limit_cuts_a_question(finished):
    found = in_this_process([f"{GD}_rotated"], **{**TINY, "model_args": "journal=false", "limit": 7})["results"]
    assert found[f"{GD}_rotated"]["incomplete_rotations,reference"] == 1  # three whole questions and half a fourth


def test_images_of_one_patient_cannot_be_swapped(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tiny_multimedeval, "TEST_ROWS", 2)  # of the same patient
    tiny_multimedeval.prepare("vqa_rad")
    with pytest.raises(MedTasksError, match="'multimedeval_vqa_rad' holds images of one patient or case only"):
        in_this_process(["multimedeval_vqa_rad_swapped"], model_args="journal=false", **TINY)


def test_groups_and_settings_that_name_a_variant(tmp_path):
    import lmms_eval.models  # noqa: F401  # the command line imports it first, too
    from lmms_eval.tasks import TaskManager

    (tmp_path / "mine.yaml").write_text(f"group: mine\ntask: [{MC}_blind, {GD}_rotated]\nmetadata: {{version: 1}}\n")
    found = TaskManager(include_path=str(tmp_path)).load_task_or_group(["mine"])
    (members,) = found.values()
    assert {name: task.config.metadata["variant"] for name, task in members.items()} == {
        f"{MC}_blind": "blind",
        f"{GD}_rotated": "rotated",
    }
    changed = manager().load_config({"task": f"{MC}_blank", "repeats": 2})
    assert changed[f"{MC}_blank"].config.repeats == 2
    assert {row["variant"] for row in changed[f"{MC}_blank"].eval_docs} == {"blank"}


@each_row("model", ["llava_med", "radfm", "med_flamingo", "hf_vlm"])
def test_every_adapter_answers_without_the_questions_image(checkpoints, home_with_demonstrations, monkeypatch, model):
    from lmms_eval.evaluator import simple_evaluate

    monkeypatch.setenv("MEDTASKS_HOME", str(home_with_demonstrations))
    tasks = [GD, *(f"{GD}_{variant}" for variant in VARIANTS), f"{MC}_blind"]
    found = simple_evaluate(model=model, model_args=checkpoints[model], tasks=tasks, **{**TINY, "limit": 4})
    read = {
        task: {one["score"]["sample"]: [option["loss"] for option in one["filtered_resps"]] for one in rows}
        for task, rows in found["samples"].items()
        if task.startswith(GD)
    }
    for task, losses_by_name in read.items():
        assert not any(math.isnan(loss) for options in losses_by_name.values() for loss in options), task
        if task.endswith("_blind"):
            for pair in {name.partition("/")[0] for name in losses_by_name}:
                assert losses_by_name[f"{pair}/1"] == pytest.approx(losses_by_name[f"{pair}/2"], rel=1e-4)
    assert len({repr(sorted(options.values())) for options in read.values()}) == len(read)
    assert "adapter_failed" not in str(found["samples"][f"{MC}_blind"])


KINDS = [
    *("multimedeval_vqa_rad", "multimedeval_pathmnist", "multimedeval_pathmnist_5shot", "multimedeval_pad_ufes_20"),
    *("multimedeval_mimic_cxr_report", "multimedeval_ct_rate_report", "multimedeval_chestxray14"),
]


def test_every_kind_of_task(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    tasks = [made.name for name in KINDS for made in variants_of(task_file(name))]
    found = in_this_process(tasks, model_args="journal=false", **TINY)
    assert set(found["results"]) == set(tasks)
    for task in tasks:
        rules = task_file(task).rows
        assert {key.partition(",")[2] for key in found["results"][task] if "," in key} == set(rules)
        shown = len(task_documents(task_file(task)))
        assert found["n-samples"][task]["effective"] == shown
        for metric in metric_names(task):
            assert all(f"{metric},{rule}" in found["results"][task] for rule in rules)
    for name in ("multimedeval_pathmnist", "multimedeval_pad_ufes_20"):
        assert found["results"][f"{name}_rotated"]["incomplete_rotations,robust"] == 0
        assert found["results"][f"{name}_rotated"]["mean_accuracy,robust"] <= 1


def knowing_or_first(knows):
    """A model that knows the class by name, or always names the first one it is shown."""

    def say(doc):
        place = doc["label"] if knows else 0
        return f"{place + 1}: {doc['options'][place]}"

    return answering(say)


def test_rotated_classes(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    task = "multimedeval_pathmnist_rotated"
    for knows, accuracy, flips in ((True, 1, 0), (False, 1 / 9, 1)):
        found = in_this_process([task], knowing_or_first(knows))["results"][task]
        for rule in task_file(task).rows:
            assert found[f"mean_accuracy,{rule}"] == pytest.approx(accuracy)
            assert found[f"worst_case,{rule}"] == float(knows)
            assert found[f"flip_rate,{rule}"] == flips
            assert found[f"invalid_rate,{rule}"] == 0
