"""Names that no task or model has, before anything starts."""

import sys

import pytest

from medtasks.running.preflight import check, our_names
from medtasks.runs.run_manifest import Severity

from ..tables import each_row


@pytest.fixture
def refused():
    def run(tasks, *arguments):
        notices = check(tasks.split(","), [*arguments, "--log_samples"])
        return [one.sentence for one in notices if one.kind is Severity.REFUSE]

    return run


def test_a_misspelt_task_ends_with_the_hint(refused):
    limit, sentence = refused("mediconfusio", "--model", "medtasks_tiny", "--limit", "0")
    assert "--limit 0" in limit
    assert sentence.startswith("there is no task 'mediconfusio', neither here")
    assert "; did you mean 'mediconfusion'?" in sentence
    assert sentence.endswith("a task from a folder of your own needs --include_path FOLDER")
    (sentence,) = refused("mediconfusion,mmbench_en_de", "--model", "medtasks_tiny")
    assert "; did you mean 'mmbench_en_dev'?" in sentence


def test_a_misspelt_model_ends_with_the_hint(refused):
    (sentence,) = refused("mediconfusion", "--model", "medtasks_tny", "--batch_size", "auto")
    assert sentence.startswith("there is no model 'medtasks_tny', neither here nor in lmms-eval")
    assert sentence.endswith("; did you mean 'medtasks_tiny'?")
    assert refused("mediconfusion", "--model=qwen2_5_v")[0].endswith("; did you mean 'qwen2_5_vl'?")


def test_both_are_named(refused):
    assert len(refused("mediconfusio,medi_confusion", "--model", "medtasks_tny")) == 3


def test_no_model_is_a_model_that_does_not_exist(refused):
    (sentence,) = refused("mediconfusion")
    assert sentence == "no model is named, and the harness's default, 'hf', does not exist; give --model NAME"


@each_row(
    "tasks",
    [
        *("mediconfusion", "mediconfusion_all", "multimedeval_vqa", "mediconfusion_blind", "mediconfusion_sanity"),
        *("medi*", "*_blind", "mmb*", "mmbench", "mmbench_en_dev", "mme", "ocr?ench"),
    ],
)
def test_every_kind_of_name_is_known(refused, tasks):
    assert refused(tasks, "--model", "medtasks_tiny") == []


def test_a_pattern_that_fits_nothing(refused):
    assert "no task 'medii*'" in refused("medii*", "--model", "medtasks_tiny")[0]


def test_the_users_own_tasks_are_known(refused, tmp_path):
    (tmp_path / "mine.yaml").write_text("task: my_own_side\ntag: my_tag\ngeneration_kwargs: {until: []}\n")
    folder = ["--include_path", str(tmp_path), "--model", "medtasks_tiny"]
    assert refused("my_own_side,my_tag", *folder) == []
    assert refused(str(tmp_path / "mine.yaml"), "--model", "medtasks_tiny") == []
    assert refused("my_own_sid", *folder)[0].endswith("; did you mean 'my_own_side'?")


def test_tasks_of_plug_ins_are_known(refused, tmp_path, monkeypatch):
    package = tmp_path / "plugged"
    (package / "tasks").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tasks" / "__init__.py").touch()
    (package / "tasks" / "theirs.yaml").write_text("task: theirs_alone\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LMMS_EVAL_PLUGINS", "plugged,not_there")
    try:
        assert refused("theirs_alone", "--model", "medtasks_tiny") == []
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "plugged"]:
            del sys.modules[name]


def test_our_names_are_those_that_commands_take(sample):
    names = set(our_names())
    assert {"mediconfusion", "mediconfusion_all", "mediconfusion_rotated", "mediconfusion_sanity"} <= names
    assert "multimedeval_vqa" in names


def test_a_harness_whose_models_cannot_be_listed_says_so_itself(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmms_eval.models", None)
    assert refused("mediconfusion", "--model", "medtasks_tny", "--batch_size", "auto") == []
