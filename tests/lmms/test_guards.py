"""What ``medtasks run`` refuses and warns of, by the harness's traps."""

import json
import re

import pytest

from medtasks.running import preflight
from medtasks.running.preflight import check
from medtasks.runs.run_manifest import Severity
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file, task_files

from ..tables import each_row

PRIVATE = "multimedeval_mimic_cxr_report"
PUBLIC = "multimedeval_vqa_rad"


@pytest.fixture
def found(monkeypatch):
    """Return the sentences about tasks and arguments, by severity; a model is named."""

    def run(tasks, *arguments):
        notices = check(tasks.split(","), ["--model", "dummy", *arguments])
        return tuple(
            [notice.sentence for notice in notices if notice.kind is kind] for kind in (Severity.REFUSE, Severity.WARN)
        )

    return run


@pytest.fixture
def one(found):
    """The only sentence, with its severity."""

    def run(tasks, *arguments):
        refused, warned = found(tasks, *arguments)
        assert len(refused) + len(warned) == 1, (refused, warned)
        return ("refuse" if refused else "warn"), (refused + warned)[0]

    return run


@pytest.fixture
def included(tmp_path):
    """Arguments that name a folder with the user's own task files."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return ["--include_path", str(tmp_path)]

    return write


REFUSED, WARNED = "refuse", "warn"
NO_EFFECT = f"no effect on {PUBLIC}"


@each_row(
    ("tasks", "arguments", "severity", "parts"),
    [
        *(
            ("mediconfusion", f"--limit={limit}", REFUSED, ["asks no row"])
            for limit in ("0", "0.0", "-2", "nan", "inf")
        ),
        ("mediconfusion", "--limit=-0.5", REFUSED, ["asks no row"]),
        ("mediconfusion", "--offset 32", WARNED, ["^--offset 32 skips all 32 rows of mediconfusion"]),
        (
            "mediconfusion",
            "--offset -1",
            REFUSED,
            ["^--offset -1 lies before the first row; give the number of rows to skip$"],
        ),
        (
            "mediconfusion",
            "--limit 5",
            WARNED,
            ["--limit 5 cuts 1 of 3 pairs of mediconfusion", "consecutive rows", "give --limit 4 or --limit 6$"],
        ),
        ("mediconfusion", "--offset 3", WARNED, ["give --offset 2 or --offset 4$"]),
        ("mediconfusion_gd", "--limit 2.0", WARNED, ["--limit 2.0 means 2 rows"]),
        ("mediconfusion", "--offset=3 --limit=4", WARNED, ["--offset 2 --limit 4 or --offset 2 --limit 6$"]),
        (PUBLIC, "--num_fewshot 2", REFUSED, [NO_EFFECT, f"choose {PUBLIC}_5shot instead"]),
        (f"{PUBLIC}_5shot", "--num_fewshot=2", REFUSED, ["leave it out"]),
        (PUBLIC, "--use_cache folder", WARNED, ["old one"]),
        (PUBLIC, "--cache_requests true", WARNED, ["cache_requests refresh"]),
        *((PUBLIC, wrong, REFUSED, []) for wrong in ("--limit", "--seed x", "--config missing.yaml")),
    ],
)
def test_one_sentence(sample, one, tasks, arguments, severity, parts):
    found, sentence = one(tasks, *arguments.split())
    assert found == severity
    for part in parts:
        assert re.search(part, sentence)


@each_row(
    ("tasks", "arguments"),
    [
        ("mediconfusion", ""),
        ("mediconfusion,mmbench_en_dev", "--limit 4 --batch_size=4 --seed 1"),
        ("mediconfusion", "--limit -1"),
        ("mediconfusion", "--limit 0.5"),  # a share of one task that cuts no pair
    ],
)
def test_nothing_to_say(sample, found, tasks, arguments):
    assert found(tasks, *arguments.split()) == ([], [])


def test_a_dataset_that_is_not_there_has_no_pairs(found):
    assert found("mediconfusion", "--limit", "5") == ([], [])


@each_row("arguments", [["--limit", "0.5"], ["--limit=.5"], ["--lim", "5e-1"]])
@each_row("tasks", ["mediconfusion,mediconfusion_gd", "mediconfusion_all", "multimedeval_5shot"])
def test_a_share_of_several_tasks(sample, found, arguments, tasks):
    (sentence,), _ = found(tasks, *arguments)
    assert re.search(r"--limit 0.5 is a share, .* to all \d+ tasks; run them one by one", sentence)


@each_row(("task", "several"), [("mmbench", True), ("mmb*", True), ("mmbench_en_dev", False)])
def test_a_share_of_the_harness_own_groups(found, task, several):
    assert bool(found(task, "--limit", "0.5")[0]) is several


def test_a_share_of_the_users_own_groups(found, included):
    text = "generation_kwargs: {until: []}\n"
    folder = included(a=f"task: a\ntag: both\n{text}", b=f"task: b\ntag: both\n{text}")
    assert "all 2 tasks" in found("both", "--limit", "0.5", *folder)[0][0]
    assert "all 3 tasks" in found("both,mmbench_en_dev", "--limit", "0.5", *folder)[0][0]
    assert found("a", "--limit", "0.5", *folder) == ([], [])


def test_a_share_that_cuts_a_pair(sample, one):
    """Of 32 rows the harness takes ceil(32 * 0.01) = 1."""
    assert len(preflight.units_of("mediconfusion", "mediconfusion")) == 32
    assert one("mediconfusion", "--limit", "0.01")[1].startswith("--limit 0.01 cuts 1 of 1 pairs")


def test_questions_whose_rotations_are_cut(sample, one, found):
    """Both options of each of the 32 questions come in two orders, so a question has two rows, a pair four."""
    severity, sentence = one("mediconfusion_rotated", "--limit", "5")
    assert severity == "warn"
    assert "--limit 5 cuts 1 of 3 questions of mediconfusion_rotated" in sentence
    assert "each rotation of a question is one" in sentence
    assert sentence.endswith("give --limit 4 or --limit 6")
    assert found("mediconfusion_rotated", "--limit", "2") == ([], [])
    assert found("mediconfusion_rotated", "--offset", "34") == ([], [])
    assert "cuts 1 of 3 pairs of mediconfusion_swapped" in one("mediconfusion_swapped", "--limit", "5")[1]


def test_the_rows_of_a_rotated_task_are_those_the_harness_gets(sample):
    rotated = task_documents(task_file("mediconfusion_rotated"))
    units = preflight.units_of("mediconfusion_rotated", "mediconfusion")
    assert units == [document["rotation_of"] for document in rotated]
    assert len(units) == 64


def test_replies_cut_at_blank_lines(one, found, included):
    folder = included(mine="task: mine\n", kept="task: kept\ngeneration_kwargs: {until: []}\n")
    severity, sentence = one("mine", *folder)
    assert severity == "warn"
    assert "replies of mine end at the first blank line" in sentence
    assert "until: []" in sentence
    assert found("kept", *folder) == ([], [])
    assert found("mine", *folder, "--gen_kwargs", "temperature=0,until=###") == ([], [])


def test_a_task_file_given_by_its_path(one, tmp_path):
    (tmp_path / "mine.yaml").write_text("task: mine\n")
    assert "replies of mine end" in one(str(tmp_path / "mine.yaml"))[1]


def test_own_datasets_tasks_are_looked_at(one, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    (tmp_path / "tasks").mkdir()
    config = {
        "task": "mine",
        "output_type": "generate_until",
        "filter_list": [],
        "process_results": "medtasks.hooks.choice.process_results",
        "metric_list": [{"metric": "m"}],
        "num_fewshot": 0,
        "metadata": {"description": "d", "dataset": "mine"},
    }
    (tmp_path / "tasks" / "mine.yaml").write_text(json.dumps(config))
    assert "replies of mine end at the first blank line" in one("mine")[1]


def test_our_own_tasks_all_say_where_replies_end(found):
    tasks = [name for name, task in task_files().items() if task.kind == "task"]
    assert found(",".join(tasks)) == ([], [])


def test_hooks_of_others_end_replies_where_they_want(found, included):
    text = "task: {0}\nprocess_results: !function {1}\n"
    folder = included(mine=text.format("mine", "medtasks.hooks.choice.process_results"), mme=text.format("mme", "my.f"))
    assert "replies of mine end" in found("mine,mme", *folder)[1][0]


def test_examples_that_make_a_task_fail(sample, one, found, included):
    severity, sentence = one("mediconfusion", "--num_fewshot", "2")
    assert severity == "refuse"
    assert "makes mediconfusion fail" in sentence
    until = "generation_kwargs: {until: []}\n"
    folder = included(mine=f"task: mine\n{until}", ready=f"task: ready\nfewshot_config: {{sampler: first_n}}\n{until}")
    assert "makes mine fail" in one("mine", "--num_fewshot", "2", *folder)[1]
    assert found("ready", "--num_fewshot", "2", *folder) == ([], [])
    assert found("mediconfusion", "--num_fewshot", "0") == ([], [])


def test_a_system_instruction(sample, one, found):
    instruction = ["--system_instruction", "Be brief."]
    assert "in front of every prompt of mediconfusion" in one("mediconfusion", *instruction)[1]
    assert found("mmbench_en_dev", *instruction) == ([], [])


LEAKS = [
    ["--use_cache", "folder"],
    ["-c", "folder"],
    ["--cache_requests", "true"],
    ["--cache_requests=refresh"],
    ["--write_out"],
    ["-w"],
    ["--swanlab_log_samples"],
    ["--hf_hub_log_args", "hub_results_org=me,push_samples_to_hub=True"],
]


@each_row("arguments", LEAKS)
def test_text_of_patients_stays(found, arguments, monkeypatch):
    (sentence,), _ = found(f"{PUBLIC},{PRIVATE}", *arguments)
    assert PRIVATE in sentence
    assert PUBLIC not in sentence
    assert f"MEDTASKS_LOG_TEXT={PRIVATE}" in sentence
    assert found(PUBLIC, *arguments)[0] == []
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", PRIVATE)
    assert found(PRIVATE, *arguments)[0] == []


@each_row(
    "arguments",
    [["--cache_requests", "delete"], ["--hf_hub_log_args", "push_samples_to_hub=False,push_results_to_hub=1"]],
)
def test_options_that_carry_no_text(found, arguments):
    assert found(PRIVATE, *arguments)[0] == []


def test_the_users_own_task_on_patients_data(found, included):
    path = "!function medtasks.data.path_of.multimedeval_mimic_cxr_report"
    folder = included(mine=f"task: mine\ndataset_path: {path}\ngeneration_kwargs: {{until: []}}\n")
    assert len(found("mine", "--write_out", *folder)[0]) == 1
    folder = included(other="task: other\ndataset_path: !function own.path\ngeneration_kwargs: {until: []}\n")
    assert found("other", "--write_out", *folder) == ([], [])


def test_a_config_file_counts_as_arguments(sample, found, tmp_path):
    (tmp_path / "run.yaml").write_text("limit: 0.5\nlog_samples: true\nnum_fewshot: 1\n")
    arguments = ["--config", str(tmp_path / "run.yaml")]
    refused, warned = found("mediconfusion,mediconfusion_gd", *arguments)
    assert len(refused) == 2
    assert "--limit 0.5 is a share" in refused[0]
    assert "--num_fewshot" in refused[1]
    assert warned == []
    assert found("mediconfusion", *arguments, "--limit", "4", "--num_fewshot", "0") == ([], [])


def test_a_config_file_that_asks_too_much(found, tmp_path):
    (tmp_path / "run.yaml").write_text("- limit: 2\n  env: {MEDTASKS_HOME: /x, HF_TOKEN: y}\n- limit: 4\n")
    refused, _ = found(PUBLIC, "--config", str(tmp_path / "run.yaml"))
    assert "2 evaluations" in refused[0]
    assert "MEDTASKS_HOME" in refused[1]
    assert "HF_TOKEN" not in refused[1]
