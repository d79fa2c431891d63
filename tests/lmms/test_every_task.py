"""Every task of ours: a run of the tiny model, which scores again the same, and one of a model that knows the key."""

import json
import math

import pytest
from lmms_eval.tasks import get_task_dict
from lmms_eval.utils import make_table
from PIL import Image

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.privacy import is_private
from medtasks.data.samples import letter
from medtasks.families.counts import COUNTS
from medtasks.lmms.remote_models import QUESTION_FILES, TRUSTED
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.prompts.template import target
from medtasks.running.question_writer import write_questions
from medtasks.runs.question_manifest import manifest_of_replies
from medtasks.runs.replies import read_replies
from medtasks.scores.scoring import PAIR_METRICS, score_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from ..tables import each_row
from .conftest import JUDGED, OURS, RUN, VARIED
from .whole_runs import answer_questions, answering, evaluate, every_task, values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared")]

WEIGHED = {key for info in REPORT_METRICS.values() if info.weights for key in info.keys}
LABELER = {
    f"multimedeval_mimic_cxr_classification{ending}" for ending in ("", "_5shot")
}  # in their reference rows
NEEDS_JUDGE = ("chair_judge_", "knowledge_rate", "hallucination_score")
NEEDS_LABELER = ("chair_label", "label_")
STOPS = ("medevalkit_omnimedvqa", "medevalkit_mmlu_med")  # published code, on these
OF_GROUPS, RARE = (
    "acc_",
    ("fallback_rate", "flip_rate"),
)  # undefined without any sample of their kind


def test_one_command_runs_every_task_and_a_general_one(results):
    assert set(results["results"]) >= {*RUN, "shouting"}
    for task in RUN:
        shown = len(task_documents(task_file(task)))
        assert results["n-samples"][task]["effective"] == shown
        metadata = results["configs"][task]["metadata"]
        assert (metadata.get("variant"), metadata.get("base")) == (
            task_file(task).variant,
            task_file(task).base,
        )
        for (metric, row), value in values(results, task).items():
            place = (task, metric, row, value)
            unlabelled = (
                task.partition("_classification")[0] == "multimedeval_mimic_cxr"
                and row == "reference"
            )
            if metric in COUNTS or metric == "submission_rows":
                assert value == int(value) >= 0, place
            elif math.isnan(value):
                absent = metric.removesuffix("_stderr") in WEIGHED or metric.startswith(
                    (*NEEDS_JUDGE, *NEEDS_LABELER)
                )
                undefined = (
                    metric.endswith("_stderr") or metric.startswith(OF_GROUPS) or metric in RARE
                )
                assert absent or undefined or unlabelled or task.startswith(STOPS), place
            else:
                assert 0 <= value <= 1 or metric.endswith("_stderr"), place


@each_row(
    "name",
    [
        name
        for name in RUN
        if CATALOGUE[task_file(name).dataset].access is not Access.CREDENTIALED
    ],
)
def test_recorded_replies_score_as_the_harness_scored_them(finished, results, name):
    task, harness = task_file(name), values(results, name)
    documents = task_documents(task)
    (file,) = finished.rglob(f"*_samples_{name}.jsonl")
    replies = read_replies(file, documents)
    assert len(replies) == len(documents)
    rows = score_replies(task, documents, replies)
    assert rows.keys() == task.rows.keys()
    for row, scores in rows.items():
        if scores.categories:
            total = scores.categories["total"]
            assert {name: getattr(total, name) for name in PAIR_METRICS} == pytest.approx(
                {name: harness[name, row] for name in PAIR_METRICS}, nan_ok=True
            )
            continue
        for metric, estimate in scores.estimates.items():
            if metric == "submission_rows":
                continue
            assert estimate.value == pytest.approx(harness[metric, row], nan_ok=True), (
                metric,
                row,
            )
            if (f"{metric}_stderr", row) in harness:
                assert estimate.error == pytest.approx(
                    harness[f"{metric}_stderr", row], nan_ok=True
                ), (metric, row)


def right_reply(doc):
    """The key in the words of a model that follows the prompt."""
    dataset = doc["dataset"]
    if dataset.endswith("mnist"):
        return f"{doc['label'] + 1}: {target(doc)}"
    if dataset in ("multimedeval_medqa", "multimedeval_medmcqa", "multimedeval_mmlu"):
        option = doc["options"]["ABCDE".index(doc["answer"])]
        return f"{doc['answer'].lower() if 'mcqa' in dataset else doc['answer']}: {option}"
    if dataset.startswith("multimedeval_"):
        return (
            doc["options"]["ABC".index(doc["answer"])]
            if "answer" in doc and "options" in doc
            else target(doc)
        )
    if doc.get("kind") == "binary":
        return {"A": "Yes", "B": "No", None: "Yes"}[doc["answer"]]
    return f"Answer: {target(doc)}" if dataset.startswith("mmmu_pro") else target(doc)


def test_a_model_that_knows_the_key():
    tasks = [name for name in OURS if name not in JUDGED]
    members = task_file("multimedeval").members
    model = answering(
        right_reply, lambda doc, index: 0.5 if doc.get("answer") == letter(index) else 2.0
    )
    found = evaluate(["multimedeval", *(name for name in tasks if name not in members)], model)
    assert {
        key for key in found["results"]["multimedeval"] if "," in key
    } == set()  # the group has no average
    assert found["group_subtasks"]["multimedeval"]
    table = make_table({**found, "results": {name: found["results"][name] for name in members}})
    for task in tasks:
        assert found["n-shot"][task] == (
            5 if task.endswith("_5shot") else 0
        )  # which the harness shows in its table
        main = task_file(task).metrics[0].name
        for (metric, row), value in values(found, task).items():
            place = (task, metric, row)
            exact = task.startswith("multimedeval_") or not row.startswith("reference")
            if (
                metric in COUNTS
                or not exact
                or metric.startswith(NEEDS_JUDGE)
                or (task in LABELER and row == "reference")
            ):
                continue
            if metric == main and main != "submission_rows":
                assert value == 1, place
            elif (
                not task.startswith("multimedeval_")
                or metric.endswith("_stderr")
                or metric in WEIGHED
            ):
                continue
            elif metric not in (
                "macro_auroc",
                "macro_f1",
            ):  # to which a class without an image counts 0
                assert value == pytest.approx(float(not metric.endswith("_rate")), abs=1e-6), (
                    place
                )
    assert all(f" - {name} [SAMPLE DATA]" in table for name in members)
    # As letters, half of the right options are not understood by the released rule.
    assert values(found, "medheval_visual_mm")["accuracy", "reference"] < 1


# ---- questions in files, which a loop answers ----


def first_of_each_kind():
    """Return a task whose replies are texts for each hook that scores, and a few-shot, a thinking and a volume task."""
    tasks = [task_file(name) for name in RUN]
    generating = [task for task in tasks if not task.compares_likelihoods]
    names = list(
        {
            (task.process_results, task.variant): task.name for task in reversed(generating)
        }.values()
    )
    return sorted({*names, "multimedeval_vqa_rad_5shot", "multimedeval_ct_rate_report"})


@each_row("name", first_of_each_kind())
def test_replies_to_questions_in_files_score_as_the_run_did(
    results, tmp_path, monkeypatch, name
):
    monkeypatch.setenv(TRUSTED, QUESTION_FILES)
    folder, task = tmp_path / "questions", task_file(name)
    manifest = write_questions(task, folder)
    answer_questions(folder, max_new_tokens=4)
    documents = task_documents(task)
    assert manifest.samples == manifest.samples_of_task == len(documents)
    manifest_of_replies(folder / "replies.jsonl").check(task, documents)
    rows = score_replies(task, documents, read_replies(folder, documents))
    harness = values(results, name)
    scores = {
        (metric, row): estimate.value
        for row, scored in rows.items()
        for metric, estimate in scored.estimates.items()
    }
    both = scores.keys() & harness.keys() - {("submission_rows", row) for row in rows}
    assert {key: repr(scores[key]) for key in both} == {key: repr(harness[key]) for key in both}
    assert len(both) >= 2


def shown(parts):
    """Return texts and pixels of a conversation's parts, or of a list of images."""
    return [
        (part["text"] if part["type"] == "text" else part["url"].convert("RGB").tobytes())
        for part in parts
    ]


@each_row(
    "name", [name for name in {*OURS, *VARIED} if not task_file(name).compares_likelihoods]
)
def test_questions_in_files_are_the_requests_of_the_harness(tmp_path, monkeypatch, name):
    monkeypatch.setenv(TRUSTED, QUESTION_FILES)
    folder, asked = tmp_path / name, 2
    write_questions(task_file(name), folder, limit=asked)
    lines = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    # Without a judge the harness makes no prompts of judged tasks.
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    for form in ("simple", "chat"):
        built = get_task_dict([name], every_task(), form)[name]
        built.build_all_requests(limit=asked)
        assert len(built.instances) == len(lines) == asked
        for request, line in zip(built.instances, lines, strict=True):
            document = built.dataset[request.args[5]][request.args[3]]
            assert line["doc_id"] == document["doc_id"] or is_private(document["dataset"])
            if form == "simple":
                assert line["text"] == request.args[0]
                assert line["generation"] == request.args[1]
                images = [Image.open(folder / file).tobytes() for file in line["images"]]
                assert images == [
                    image.convert("RGB").tobytes() for image in request.args[2](document)
                ]
                continue
            turns = request.args[1](document)
            assert [turn["role"] for turn in line["messages"]] == [
                turn["role"] for turn in turns
            ]
            for written, turn in zip(line["messages"], turns, strict=True):
                parts = written["content"]
                if isinstance(parts, str):
                    assert parts == "".join(shown(turn["content"]))
                    continue
                content = [
                    part["text"]
                    if part["type"] == "text"
                    else Image.open(folder / part["image_url"]["url"]).tobytes()
                    for part in parts
                ]
                assert content == shown(turn["content"])
