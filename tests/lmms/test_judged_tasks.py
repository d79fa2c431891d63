"""Tasks that need an LLM judge, against one on the loopback: MediConfusion's free-form mode, MedEvalKit's, a user's."""

import json
import math

import pytest
from PIL import Image

from medtasks.audit.scoring import score_replies
from medtasks.data.document_store import load_documents
from medtasks.errors import JudgeNotConfigured
from medtasks.families.family import Reply
from medtasks.home import own_tasks_folder
from medtasks.runs.replies import read_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from .conftest import JUDGED
from .whole_runs import answering, evaluate, values

pytestmark = pytest.mark.slow

FREE_FORM = "mediconfusion_ff"
ACCEPTED = "<think>so</think><judge>0</judge>"


def verdict(body):
    """Prefer the option whose first word stands in the reply that is shown; else like both alike."""
    prompt = body["messages"][-1]["content"]
    reply = prompt.split("[AI Assistant]\n")[1].split("\n\n[End of AI Assistant]")[0]
    option_a = prompt.split("[Answer A]\n")[1].split("\n")[0]
    scores = "A: 9\nB: 2" if option_a in reply else "A: 5\nB: 5"
    return f"{scores}\nYour explanation: because"


def first_option():
    """A model that answers every question with the text of option A."""
    return answering(lambda doc: f"I see this: {doc['options'][0]}")


def test_judge_reads_every_reply_once_and_a_rerun_is_free(judging, sample):
    judge = judging(verdict)
    found = evaluate([FREE_FORM], first_option())["results"][FREE_FORM]
    assert found["confusion,reference"] == found["confusion,fenced"] == 1.0
    assert found["individual_accuracy,reference"] == 0.5
    assert found["judge_failed_rate,reference"] == 0.0
    asked = judge.count
    assert 0 < asked <= 64  # once with the published prompt, once with the reply between marks
    evaluate([FREE_FORM], first_option())
    assert judge.count == asked

    documents = load_documents("mediconfusion")  # recorded replies are judged, too
    replies = {one["doc_id"]: Reply(one["options"][0] if one["position"] == 1 else "fog") for one in documents}
    scores = score_replies(task_file(FREE_FORM), documents, replies)["reference"]
    total = scores.categories["total"]
    assert total.invalid == 16
    assert total.individual_score == sum(one["answer"] == "A" for one in documents if one["position"] == 1)
    assert scores.reasons == {"ok": 16, "ambiguous": 16}


def test_unreachable_judge_loses_nothing(sample, monkeypatch):
    for name, value in {"BASE_URL": "http://127.0.0.1:9/v1", "MODEL": "nobody", "ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
    found = evaluate([FREE_FORM], first_option())
    results = found["results"][FREE_FORM]
    assert results["judge_failed_rate,reference"] == 1.0
    assert results["unjudged_samples,reference"] == 32
    for metric in ("invalid_rate", "set_accuracy", "individual_accuracy", "confusion"):
        assert math.isnan(results[f"{metric},reference"])
    samples = found["samples"][FREE_FORM]
    assert {sample["score"]["reason"] for sample in samples} == {"judge_failed"}
    assert all("I see this" in str(sample["resps"]) for sample in samples)


@pytest.mark.parametrize("task", [FREE_FORM, "medevalkit_vqa_rad_judged", "gmai_mmbench_val_judged"])
def test_no_judge_stops_before_the_model_runs(prepared, task):
    def reply(doc):
        raise AssertionError("the model ran")

    with pytest.raises(JudgeNotConfigured, match=r"needs an LLM judge.*MEDTASKS_JUDGE_BASE_URL"):
        evaluate([task], answering(reply))


def test_medevalkits_judge_in_a_run_and_later(prepared, finished, judging):
    judge = judging(lambda body: ACCEPTED)
    tasks = [name for name in JUDGED if name.startswith("medevalkit_")]
    found = evaluate(tasks, answering(lambda doc: "I think so"))
    for name in tasks:
        assert values(found, name)["acc_open", "robust"] == 1.0
        assert values(found, name)["judge_failed_rate", "robust"] == 0.0
    assert judge.count
    task = task_file("medevalkit_vqa_rad_judged")  # of replies that a plain run recorded
    (file,) = finished.rglob("*_samples_medevalkit_vqa_rad.jsonl")
    rows = score_replies(task, documents := task_documents(task), read_replies(file, documents))
    assert rows["robust"].estimates["unjudged_samples"].value == 0
    assert rows["reference_fixed"].estimates["acc_open"].value == 1.0


YAML = """
task: own_{name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/questions.jsonl}}}}
test_split: test
output_type: generate_until
generation_kwargs: {{max_new_tokens: 8, temperature: 0, do_sample: false, until: []}}
reasoning_tags: none
lmms_eval_specific_kwargs:
  default: {{image_root: {folder}, template: "{{{{ question }}}}\\nPlease answer the question concisely."}}
doc_to_visual: !function medtasks.hooks.images.images
doc_to_text: !function medtasks.hooks.{prompt}.prompt
doc_to_target: !function medtasks.hooks.multimedeval_prompts.target
process_results: !function medtasks.hooks.{name}.process_results
metric_list: !function medtasks.hooks.{name}.METRIC_LIST
filter_list:
  - {{name: reference, filter: [{{function: !function medtasks.hooks.filters.ReadWith, rule: medevalkit_vqa}}]}}
  - {{name: robust, filter: [{{function: !function medtasks.hooks.filters.ReadWith, rule: robust_kit_vqa}}]}}
metadata: {{version: 1, description: Questions and short answers}}
"""
QUESTIONS = {  # with their answers and the model's replies
    "Is there a mass?": ("yes", "Yes."),
    "Is it large?": ("no", "I cannot tell."),
    "Where is it?": ("left lung", "On the left."),
    "Which organ?": ("liver", "The liver."),
}


def test_own_questions_by_rule_and_by_judge_and_again_from_the_samples(judging, tmp_path):
    folder = own_tasks_folder()
    folder.mkdir(parents=True)
    rows = [{"question": text, "answer": gold, "image_file": "scan.png"} for text, (gold, _) in QUESTIONS.items()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Image.new("RGB", (8, 8)).save(folder / "scan.png")
    for name, prompt in (("kit_questions", "multimedeval_prompts"), ("judged_questions", "judged_choice")):
        (folder / f"{name}.yaml").write_text(YAML.format(name=name, prompt=prompt, folder=folder))
    judge = judging(lambda body: ACCEPTED)
    tasks = ["own_kit_questions", "own_judged_questions"]
    found = evaluate(tasks, answering(lambda doc: QUESTIONS[doc["question"]][1]), log_samples=True)
    plain, judged = (found["results"][task] for task in tasks)
    for scores, row, expected in (
        (plain, "reference", [0.5, 1, 0]),
        (plain, "robust", [0.5, 0.5, 0.5]),
        (judged, "reference", [1, 1, 0.5]),
        (judged, "robust", [0.75, 0.5, 1]),
    ):
        assert [scores[f"{name},{row}"] for name in ("accuracy", "acc_closed", "acc_open")] == expected
    assert plain["invalid_rate,robust"] == 0.25
    asked = judge.count
    assert 0 < asked <= 4

    samples, file = found["samples"][tasks[1]], tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(sample, default=str) + "\n" for sample in samples))
    documents = [{"doc_id": str(number), **sample["doc"]} for number, sample in enumerate(samples[:4])]
    for row, scores in score_replies(task_file(tasks[1]), documents, read_replies(file, documents)).items():
        for name, estimate in scores.estimates.items():
            assert estimate.value == pytest.approx(judged[f"{name},{row}"], nan_ok=True)
    assert judge.count == asked
