"""A user's questions and answers, read by rule and by MedEvalKit's judge, through the harness."""

import json
import math

import pytest
from PIL import Image

from medtasks.audit.scoring import score_replies
from medtasks.home import own_tasks_folder
from medtasks.runs.replies import read_replies
from medtasks.tasks.task_files import task_file

from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow

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
ASKED = {
    "Is there a mass?": ("yes", "Yes."),
    "Is it large?": ("no", "I cannot tell."),
    "Where is it?": ("left lung", "On the left."),
    "Which organ?": ("liver", "The liver."),
}
PLAIN, JUDGED = "own_kit_questions", "own_judged_questions"


@pytest.fixture
def _asked():
    folder = own_tasks_folder()
    folder.mkdir(parents=True)
    rows = [{"question": one, "answer": gold, "image_file": "scan.png"} for one, (gold, _) in ASKED.items()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Image.new("RGB", (8, 8)).save(folder / "scan.png")
    for name, prompt in (("kit_questions", "multimedeval_prompts"), ("judged_questions", "judged_choice")):
        (folder / f"{name}.yaml").write_text(YAML.format(name=name, prompt=prompt, folder=folder))


@pytest.mark.usefixtures("_asked")
def test_by_rule_and_by_judge_and_again_from_the_samples(judging, tmp_path):
    judge = judging(lambda body: "<think>so</think><judge>0</judge>")
    found = evaluate([PLAIN, JUDGED], answering(lambda doc: ASKED[doc["question"]][1]), log_samples=True)
    plain, judged = (found["results"][task] for task in (PLAIN, JUDGED))
    assert [plain[f"{name},reference"] for name in ("accuracy", "acc_closed", "acc_open")] == [0.5, 1, 0]
    assert [plain[f"{name},robust"] for name in ("accuracy", "acc_closed", "acc_open")] == [0.5, 0.5, 0.5]
    assert [judged[f"{name},reference"] for name in ("accuracy", "acc_closed", "acc_open")] == [1, 1, 0.5]
    assert [judged[f"{name},robust"] for name in ("accuracy", "acc_closed", "acc_open")] == [0.75, 0.5, 1]
    assert plain["invalid_rate,robust"] == 0.25
    asked = judge.count
    assert 0 < asked <= 4

    file = tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(one, default=str) + "\n" for one in found["samples"][JUDGED]))
    documents = [{"doc_id": str(n), **one["doc"]} for n, one in enumerate(found["samples"][JUDGED][:4])]
    again = score_replies(task_file(JUDGED), documents, read_replies(file, documents))
    for row, scored in again.items():
        for name, estimate in scored.estimates.items():
            expected = judged[f"{name},{row}"]
            assert estimate.value == expected or (math.isnan(expected) and math.isnan(estimate.value))
    assert judge.count == asked
