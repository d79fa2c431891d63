"""Tasks that need an LLM judge, against one on the loopback: MediConfusion's free-form mode, MedEvalKit's, a user's."""

import pytest
from medtasks.model_adapters.tiny import MedTasksTiny

from medtasks.data.document_store import load_documents
from medtasks.errors import JudgeNotConfigured
from medtasks.families.family import Reply
from medtasks.runs.replies import read_replies
from medtasks.scores.scoring import score_replies
from medtasks.tasks.documents import check_judge, task_documents
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


def test_judge_reads_every_reply_once(judging, sample):
    judge = judging(verdict)
    of_option_a = answering(lambda doc: f"I see this: {doc['options'][0]}")
    found = evaluate([FREE_FORM], of_option_a)["results"][FREE_FORM]
    assert found["confusion,reference"] == found["confusion,fenced"] == 1.0
    assert found["individual_accuracy,reference"] == 0.5
    assert found["judge_failed_rate,reference"] == 0.0
    assert (
        0 < judge.count <= 64
    )  # once with the published prompt, once with the reply between marks

    documents = load_documents("mediconfusion")  # recorded replies are judged, too
    replies = {
        one["doc_id"]: Reply(one["options"][0] if one["position"] == 1 else "fog")
        for one in documents
    }
    scores = score_replies(task_file(FREE_FORM), documents, replies)["reference"]
    total = scores.categories["total"]
    assert total.invalid == 16
    assert total.individual_score == sum(
        one["answer"] == "A" for one in documents if one["position"] == 1
    )
    assert scores.reasons == {"ok": 16, "ambiguous": 16}


def test_the_best_of_all_four_techniques_is_of_each_metric(judging, sample):
    modes = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps", FREE_FORM]
    judging(
        lambda body: "A: 9\nB: 2\nYour explanation: because"
    )  # always A, so that every pair is confused
    results = evaluate(["mediconfusion_all_ff"])
    found, group = results["results"], results["results"]["mediconfusion_all_ff"]
    assert results["group_subtasks"]["mediconfusion_all_ff"] == modes
    assert found[FREE_FORM]["confusion,reference"] == 1.0
    for metric, best in (
        ("set_accuracy", max),
        ("individual_accuracy", max),
        ("confusion", min),
    ):
        of_modes = [found[mode][f"{metric},reference"] for mode in modes]
        assert group[f"{metric},reference"] == best(
            value for value in of_modes if value == value
        ), metric
        assert group[f"{metric},robust"] == best(
            found[mode][f"{metric},robust"] for mode in modes[:3]
        ), metric


@pytest.mark.parametrize(
    "task", [FREE_FORM, "medevalkit_vqa_rad_judged", "gmai_mmbench_val_judged"]
)
def test_no_judge_stops_before_the_model_is_loaded(prepared, task, monkeypatch):
    def load(self):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(MedTasksTiny, "load", load)
    with pytest.raises(
        JudgeNotConfigured, match=rf"'{task}' needs an LLM judge.*MEDTASKS_JUDGE_BASE_URL"
    ):
        evaluate(["medevalkit_vqa_rad", task])


def test_a_judge_named_in_part_stops_a_task_that_runs_without_one(prepared, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "gpt-4o")
    with pytest.raises(
        JudgeNotConfigured, match=r"needs an LLM judge and MEDTASKS_JUDGE_BASE_URL is not set"
    ):
        check_judge(task_file("medheval_knowledge_open"))
    check_judge(task_file("medevalkit_vqa_rad"))


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
