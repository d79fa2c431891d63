"""Guards around the harness's evaluation of our tasks, with a stand-in for the evaluator."""

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from datasets import Dataset
from lmms_eval.api.instance import Instance
from openai import OpenAI

from medtasks.data.images.decoding import LINEAR
from medtasks.errors import ModelRefused
from medtasks.hooks import choice
from medtasks.lmms import earlier_replies, evaluation, plugin
from medtasks.lmms.evaluation import guard_evaluation
from medtasks.prompts.images import OPENED, OpenedImage
from medtasks.runs.logged_samples import without_scoring
from medtasks.runs.reply_origins import COPIED, KEPT, ORIGIN

from ..tables import each_row


class Model:
    """Attributes of a model of the harness; nothing calls it."""

    generate_until = loglikelihood = lambda self, requests: []


def guarded(stand_in):
    """A module with an evaluator that our package has guarded twice."""
    module = ModuleType("evaluator")
    module.evaluate = stand_in
    guard_evaluation(module)
    guard_evaluation(module)
    return module.evaluate


def task_with(documents=(), **settings):
    config = SimpleNamespace(process_results=choice.process_results, num_fewshot=0, metadata={})
    return SimpleNamespace(config=config, eval_docs_no_media=documents, **settings)


@pytest.fixture
def evaluate():
    """Evaluate one task of ours with a model that is never asked; return results and all calls."""
    calls, failed = [], []

    def stand_in(lm, task_dict):
        calls.append(task_dict)
        scores = {
            "confusion,robust": 0.5,
            "set_accuracy,robust": 0.25,
            "scored_samples,robust": 4,
        }
        return {
            "results": {
                "mediconfusion": {
                    **scores,
                    "failed_samples,robust": failed.pop() if failed else 0,
                }
            }
        }

    evaluator = guarded(stand_in)

    def run(lost=0, documents=(), lm=None):
        failed.append(lost)
        return evaluator(lm or Model(), {"mediconfusion": task_with(documents)}), calls

    return run


ROW = {
    "alias": "mine",
    "confusion,reference": 0.5,
    "confusion_stderr,reference": 0.1,
    "confusion,robust": 0.25,
    "individual_accuracy,reference": 0.5,
    "set_accuracy,robust": 0.125,
    "set_accuracy,reference": 0.75,
    "set_accuracy_stderr,reference": 0.0625,
}


def test_images_that_a_run_did_not_open_are_counted_as_such():
    """Replies of an earlier run, as those of --only-failed, leave their images unopened; unshown ones do not count."""
    documents = [{"image_files": [f"/{name}.png", "/second.png"]} for name in "abc"]

    def stand_in(lm, task_dict):
        OPENED[Path("/b.png"), LINEAR] = OpenedImage("b.png", ("P to RGB",))
        return {"configs": {"mediconfusion": {"metadata": {"version": 1}}}}

    task = task_with(documents, lmms_eval_specific_kwargs={"shown_images": 1})
    results = guarded(stand_in)(Model(), {"mediconfusion": task})
    counts = {"P to RGB": 1, "not opened in this run": 2}
    assert (
        results["configs"]["mediconfusion"]["metadata"]["data"]["image_conversions"] == counts
    )


@each_row(
    ("dataset", "allowed"),
    [(None, True), ("mediconfusion", True), ("multimedeval_mimic_cxr_report", False)],
)
def test_a_server_is_quoted_unless_data_are_credentialed(
    evaluate, monkeypatch, dataset, allowed
):
    lm = Model()
    lm.quote_errors = lambda *, allowed: setattr(lm, "quotes", allowed)
    monkeypatch.setattr("medtasks.lmms.remote_models.refuse_remote_model", lambda *_: None)
    evaluate(lm=lm, documents=[{"dataset": dataset}])
    assert lm.quotes is allowed


def test_replies_of_an_earlier_run_are_not_asked_for(monkeypatch, capsys):
    kept = earlier_replies.KeptReply("B")
    monkeypatch.setattr(
        earlier_replies, "kept_replies", lambda tasks: {(name, 3, 0): kept for name in tasks}
    )
    request = Instance(
        "generate_until", ("",), 0, {"task": "mediconfusion", "doc_id": 3, "repeats": 1}
    )
    replies = []

    def stand_in(lm, task_dict):
        replies.extend(lm.generate_until([request]))
        return {"results": {}, "samples": {"mediconfusion": [{"doc_id": 3}, {"doc_id": 4}]}}

    results = guarded(stand_in)(Model(), {"mediconfusion": task_with()})
    assert replies == ["B"]
    assert [sample.get(ORIGIN) for sample in results["samples"]["mediconfusion"]] == [
        KEPT,
        None,
    ]
    assert (
        "1 of 2 replies are those of the run that this one completes" in capsys.readouterr().err
    )


@each_row(("lost", "words"), [(0, []), (1, ["mediconfusion: 1 failed of 5 samples"])])
def test_the_last_word_is_of_failures_if_there_are_any(evaluate, monkeypatch, lost, words):
    printed = []
    monkeypatch.setattr(evaluation, "say", printed.append)
    evaluate(lost=lost)
    assert printed == [
        f"samples without a reply or a verdict are in no score. {word}." for word in words
    ]


@each_row("cache, expected", [(None, [None, None]), (object(), [None, COPIED])])
def test_a_sample_without_a_request_comes_from_the_response_cache(cache, expected):
    request = Instance(
        "loglikelihood", ("", "A"), 0, {"task": "mediconfusion", "doc_id": 3, "repeats": 1}
    )

    def stand_in(lm, task_dict, response_cache):
        lm.loglikelihood([request])
        return {"results": {}, "samples": {"mediconfusion": [{"doc_id": 3}, {"doc_id": 4}]}}

    lm = Model()
    lm.loglikelihood = lambda requests: [(1.0, False)]
    results = guarded(stand_in)(lm, {"mediconfusion": task_with()}, cache)
    assert [sample.get(ORIGIN) for sample in results["samples"]["mediconfusion"]] == expected


def test_copies_of_our_models_are_recorded_for_any_task(
    capsys,
):
    lm = Model()
    lm.copied, lm.harness_tasks = {("mme", 9)}, {}

    def stand_in(lm, task_dict):
        assert lm.harness_tasks == task_dict
        assert lm.copied == set()
        lm.copied.add(("mme", 1))
        return {"results": {}, "samples": {"mme": [{"doc_id": row} for row in (0, 1, 9, 1)]}}

    theirs = {"mme": SimpleNamespace(config=SimpleNamespace(), eval_docs_no_media=())}
    results = guarded(stand_in)(lm, theirs)

    assert [sample.get(ORIGIN) for sample in results["samples"]["mme"]] == [
        None,
        COPIED,
        None,
        COPIED,
    ]
    printed = capsys.readouterr().err
    assert (
        "mme: 1 of 3 replies are copies of an earlier run; to ask anew, run with journal=false"
        in printed
    )


def test_a_row_of_credentialed_data_is_enough_to_keep_a_run_here(evaluate):
    """The task reads no prepared dataset, and only its second document says where it comes from."""
    lm = Model()
    lm.client = OpenAI(base_url="http://api.vendor.invalid/v1", api_key="none")
    documents = [
        {"dataset": "multimedeval_vqa_rad"},
        {"dataset": "multimedeval_mimic_cxr_report"},
    ]
    assert len(evaluate(documents=documents[:1], lm=lm)[1]) == 1
    for read in (documents, Dataset.from_list(documents)):
        with pytest.raises(ModelRefused, match="multimedeval_mimic_cxr_report"):
            evaluate(documents=read, lm=lm)
    assert len(evaluate(documents=Dataset.from_list([{"a": 1}]), lm=lm)[1]) == 2


@pytest.mark.parametrize("loader", ["arrow", "json", "folder", "saved"])
def test_a_table_of_credentialed_data_keeps_a_run_here_however_it_is_named(
    monkeypatch, tmp_path, loader
):
    """Tasks with hooks of their own; a row says nothing."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "home" / "datasets" / "multimedeval_mimic_cxr_report"
    Dataset.from_list([{"a": 1}]).save_to_disk(folder / "test")
    (folder / "test" / "rows.json").write_text('{"a": 1}\n')
    (tmp_path / "linked").symlink_to(tmp_path / "home")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "data.json").symlink_to(folder / "test" / "rows.json")

    linked = tmp_path / "linked" / folder.relative_to(tmp_path / "home")
    files = {"arrow": linked / "test" / "data-*.arrow", "json": tmp_path / "copy" / "data.json"}
    named = files.get(loader)
    configs = [
        {"dataset_path": str(linked / "test" if loader == "saved" else tmp_path / "copy")}
    ]
    if named is not None:
        configs = [
            {"dataset_path": loader, "dataset_kwargs": {"data_files": written}}
            for written in (
                str(named),
                [str(named)],
                {"test": str(named)},
                f"file://{named}",
                os.path.relpath(named),
            )
        ]
        configs.append(
            {"dataset_path": loader, "dataset_kwargs": {"data_dir": str(named.parent)}}
        )

    lm = Model()
    lm.client = OpenAI(base_url="http://api.vendor.invalid/v1", api_key="none")
    evaluator = guarded(lambda lm, task_dict: {})

    for config in configs:
        task = SimpleNamespace(config=SimpleNamespace(**config))
        with pytest.raises(ModelRefused, match="multimedeval_mimic_cxr_report"):
            evaluator(lm, {"theirs": task})

    own = tmp_path / "own.json"
    own.write_text('{"a": 1}\n')
    config = {"dataset_path": "json", "dataset_kwargs": {"data_files": str(own)}}
    assert evaluator(lm, {"theirs": SimpleNamespace(config=SimpleNamespace(**config))}) == {}


@each_row(
    ("path", "is_own"),
    [("json", True), ("imagefolder", True), (".", True), ("lmms-lab/MMMU", False)],
)
def test_copies_of_own_tables_of_tasks_with_hooks_of_others_are_their_owners(path, is_own):
    def download(task):
        umask = os.umask(0o022)
        os.umask(umask)
        return umask

    before = os.umask(0o022)
    try:
        task = SimpleNamespace(config=SimpleNamespace(task="theirs", dataset_path=path))
        assert plugin.download_and_check(download, task) == (0o077 if is_own else 0o022)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_replies_that_could_not_be_saved_are_in_the_results(monkeypatch):
    monkeypatch.setattr(evaluation, "faults_of_saving", lambda: ["replies cannot be saved"])
    results = guarded(lambda lm, task_dict: {})(Model(), {"mediconfusion": task_with()})
    assert results["medtasks_notices"] == ["replies cannot be saved"]


@each_row(("agent", "end"), [(True, SystemExit), (False, ConnectionError)])
def test_only_an_agent_that_would_take_an_error_for_success_gets_an_exit_code(
    monkeypatch, capfd, agent, end
):
    def stand_in(lm, task_dict):
        raise ConnectionError("the other machine is gone")

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run") if agent else monkeypatch.delenv(
        "TORCHELASTIC_RUN_ID", False
    )
    with pytest.raises(end) as ended:
        guarded(stand_in)(Model(), {})
    assert getattr(ended.value, "code", 1) == 1
    assert ("the other machine is gone" in capfd.readouterr().err) == agent


@each_row(("listed", "hook"), [("bypass", without_scoring), ("confusion", None)])
def test_a_task_whose_replies_are_only_collected_withholds_text(listed, hook):
    task = task_with()
    task.config = SimpleNamespace(
        process_results=None, metric_list=[{"metric": listed}], metadata={}
    )
    guarded(lambda lm, task_dict: None)(Model(), {"mme": task})
    assert task.config.process_results is hook
