"""What stands around the harness's evaluation of our tasks, with a stand-in for the evaluator."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from datasets import Dataset
from openai import OpenAI
from openai.types.chat import ChatCompletion

from medtasks.data.images.decoding import LINEAR
from medtasks.errors import ModelRefused
from medtasks.hooks import choice
from medtasks.lmms import evaluation
from medtasks.lmms.evaluation import guard_evaluation
from medtasks.lmms.server_journal import JOURNAL_VARIABLE
from medtasks.prompts.images import OPENED, OpenedImage
from medtasks.runs.logged_samples import without_scoring

from ..tables import each_row


class Model:
    """What a model of the harness has; nothing calls it."""

    generate_until = loglikelihood = lambda self, requests: []


@pytest.fixture
def evaluate():
    """Evaluate one task of ours with a model that nobody asks."""
    module = ModuleType("evaluator")
    calls, failed = [], []

    def stand_in(lm, task_dict):
        calls.append(task_dict)
        scores = {"confusion,robust": 0.5, "set_accuracy,robust": 0.25, "scored_samples,robust": 4}
        return {"results": {"mediconfusion": {**scores, "failed_samples,robust": failed.pop() if failed else 0}}}

    module.evaluate = stand_in
    guard_evaluation(module)
    guard_evaluation(module)

    def run(shots=0, lost=0, documents=(), lm=None):
        failed.append(lost)
        config = SimpleNamespace(process_results=choice.process_results, num_fewshot=shots, metadata={})
        task = SimpleNamespace(config=config, eval_docs_no_media=documents)
        return module.evaluate(lm or Model(), {"mediconfusion": task}), calls

    return run


def test_the_main_metric_sorts_first(evaluate, monkeypatch):
    monkeypatch.setitem(OPENED, (Path("other.png"), LINEAR), OpenedImage("other.png", ()))  # before, in this process
    results, calls = evaluate()
    assert len(calls) == 1
    assert sorted(results["results"]["mediconfusion"])[:2] == ["set_accuracy,robust", "confusion,robust"]


def test_images_that_a_run_did_not_open_are_counted_as_such():
    """Replies of an earlier run, as those of --only-failed, leave their images unopened; unshown ones do not count."""
    documents = [{"image_files": [f"/{name}.png", "/second.png"]} for name in "abc"]
    module = ModuleType("evaluator")

    def stand_in(lm, task_dict):
        OPENED[Path("/b.png"), LINEAR] = OpenedImage("b.png", ("P to RGB",))
        return {"configs": {"mediconfusion": {"metadata": {"version": 1}}}}

    module.evaluate = stand_in
    guard_evaluation(module)
    config = SimpleNamespace(process_results=choice.process_results, num_fewshot=0, metadata={})
    task = SimpleNamespace(config=config, eval_docs_no_media=documents, lmms_eval_specific_kwargs={"shown_images": 1})
    results = module.evaluate(Model(), {"mediconfusion": task})
    counts = {"P to RGB": 1, "not opened in this run": 2}
    assert results["configs"]["mediconfusion"]["metadata"]["data"]["image_conversions"] == counts


@each_row(("dataset", "allowed"), [(None, True), ("mediconfusion", True), ("multimedeval_mimic_cxr_report", False)])
def test_a_server_is_quoted_unless_data_are_credentialed(evaluate, monkeypatch, dataset, allowed):
    lm = Model()
    lm.quote_errors = lambda *, allowed: setattr(lm, "quotes", allowed)
    monkeypatch.setattr("medtasks.lmms.remote_models.refuse_remote_model", lambda *_: None)
    evaluate(lm=lm, documents=[{"dataset": dataset}])
    assert lm.quotes is allowed


@each_row(("lost", "words"), [(0, []), (1, ["mediconfusion: 1 failed of 5 samples"])])
def test_the_last_word_is_of_failures_if_there_are_any(evaluate, monkeypatch, lost, words):
    said = []
    monkeypatch.setattr(evaluation, "say", said.append)
    evaluate(lost=lost)
    assert said == [f"samples without a reply or a verdict are in no score. {word}." for word in words]


def test_a_journal_is_kept_of_foreign_tasks_too(monkeypatch):
    """And a run without ours is otherwise left as it is: what the server gave is not marked."""
    monkeypatch.setenv(JOURNAL_VARIABLE, "true")
    choice_of_text = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "B"}}
    answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice_of_text]}
    asked = []
    create = lambda **request: asked.append(request) or ChatCompletion.construct(**answer)  # noqa: E731
    lm = Model()
    lm.client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    lm.rank, lm.world_size = 0, 1
    module = ModuleType("evaluator")
    module.evaluate = lambda lm, task_dict: lm.client.chat.completions.create(messages=[]).choices[0].message.content
    guard_evaluation(module)
    theirs = {"mme": SimpleNamespace(config=SimpleNamespace(), eval_docs_no_media=(), lmms_eval_specific_kwargs=None)}
    assert [module.evaluate(lm, theirs) for _ in range(2)] == ["B", "B"]
    assert len(asked) == 1
    assert lm.client.chat.completions.create is create


def test_a_row_of_credentialed_data_is_enough_to_keep_a_run_here(evaluate):
    """The task reads no prepared dataset, and only its second document says where it comes from."""
    lm = Model()
    lm.client = OpenAI(base_url="http://api.vendor.invalid/v1", api_key="none")
    documents = [{"dataset": "multimedeval_vqa_rad"}, {"dataset": "multimedeval_mimic_cxr_report"}]
    assert len(evaluate(documents=documents[:1], lm=lm)[1]) == 1
    for read in (documents, Dataset.from_list(documents)):
        with pytest.raises(ModelRefused, match="multimedeval_mimic_cxr_report"):
            evaluate(documents=read, lm=lm)
    assert len(evaluate(documents=Dataset.from_list([{"a": 1}]), lm=lm)[1]) == 2


@each_row(("agent", "end"), [(True, SystemExit), (False, ConnectionError)])
def test_only_an_agent_that_would_take_an_error_for_success_gets_an_exit_code(monkeypatch, capfd, agent, end):
    module = ModuleType("evaluator")

    def stand_in(lm, task_dict):
        raise ConnectionError("the other machine is gone")

    module.evaluate = stand_in
    guard_evaluation(module)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run") if agent else monkeypatch.delenv("TORCHELASTIC_RUN_ID", False)
    with pytest.raises(end) as ended:
        module.evaluate(Model(), {})
    assert getattr(ended.value, "code", 1) == 1
    assert ("the other machine is gone" in capfd.readouterr().err) == agent


@each_row(("listed", "hook"), [("bypass", without_scoring), ("confusion", None)])
def test_a_task_whose_replies_are_only_collected_withholds_text(listed, hook):
    module = ModuleType("evaluator")
    module.evaluate = lambda lm, task_dict: None
    guard_evaluation(module)
    config = SimpleNamespace(process_results=None, metric_list=[{"metric": listed}], metadata={})
    module.evaluate(Model(), {"mme": SimpleNamespace(config=config, eval_docs_no_media=())})
    assert config.process_results is hook
