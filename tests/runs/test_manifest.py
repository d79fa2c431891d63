"""Manifest of a run, the harness's command line, and how many samples are in no score."""

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest

from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError
from medtasks.runs import run_manifest as process_records
from medtasks.runs.harness_options import HarnessOptions, _parser, read_options, seeds
from medtasks.runs.run_manifest import (
    Hardware,
    ModelFacts,
    RunManifest,
    RunProcess,
    RunState,
    Seeds,
    TaskOutcome,
    TaskRecord,
    continued_run_id,
    is_running,
    manifest_files,
    manifest_path,
    process_of,
    read_manifests,
)
from medtasks.runs.sample_counts import FailureLimit, SampleCounts, counts_of

from ..tables import each_row

NOON = datetime(2031, 5, 6, 12, 0, 0, 250, tzinfo=UTC)


def manifest(state=RunState.FINISHED, started=NOON, process=None):
    return RunManifest(
        state=state,
        started=started.isoformat(),
        process=process or process_of(os.getpid()),
        command=("medtasks", "run"),
        arguments=(),
        asked=("one",),
        tasks={"one": TaskRecord(outcome=TaskOutcome.DONE, results="x_results.json")},
        seeds=Seeds(python=0, numpy=1, torch=None, fewshot=3),
        versions={"python": "3.11", "vllm": None},
        model=ModelFacts(name="hf", arguments="", unknown="no weights"),
        hardware=Hardware(system="Linux x86_64", cpu="", cores=2, memory=None),
    )


def test_read_back(tmp_path):
    path = manifest_path(tmp_path / "out", NOON)
    written = manifest()
    written.write(path)
    (read,) = read_manifests(tmp_path / "out")
    assert read == written
    assert read.path == written.path == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    elsewhere = NOON.astimezone(timezone(timedelta(hours=8)))
    assert manifest_path(tmp_path, elsewhere).name == "20310506_120000_000250Z_run.json"
    for time in (NOON - timedelta(days=40), NOON + timedelta(microseconds=1)):
        manifest(started=time).write(manifest_path(tmp_path / "out", time))
    started = [one.started for one in read_manifests(tmp_path / "out")]
    assert len(started) == 3
    assert started == sorted(started)
    assert read_manifests(tmp_path / "nowhere") == []


OTHER_MODEL = ModelFacts(name="vllm", arguments="", weights="w")


@each_row(
    "last, goes_on",
    [
        ({"state": RunState.INTERRUPTED}, True),
        ({"state": RunState.RUNNING}, True),  # whose process is gone
        ({"state": RunState.FINISHED}, False),
        ({"state": RunState.WITH_FAILURES}, False),
        (
            {
                "state": RunState.WITH_FAILURES,
                "tasks": {"one": TaskRecord(outcome=TaskOutcome.FAILED)},
            },
            True,
        ),
        ({"state": RunState.RUNNING, "process": process_of(os.getpid())}, False),
        ({"state": RunState.INTERRUPTED, "model": OTHER_MODEL}, False),
        ({"state": RunState.INTERRUPTED, "shard": Shard(1, 2)}, False),
    ],
)
def test_a_run_that_was_stopped_goes_on_under_its_id(last, goes_on, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    gone = process_of(os.getpid()).model_copy(update={"began": 1})
    earlier = manifest(process=gone, started=NOON - timedelta(1)).model_copy(
        update={"run": "a"}
    )
    earlier.write(manifest_path(folder, NOON - timedelta(1)))
    assert continued_run_id(folder, manifest()) == ""
    manifest(process=gone).model_copy(update={"run": "b", **last}).write(
        manifest_path(folder, NOON)
    )
    assert continued_run_id(folder, manifest()) == ("b" if goes_on else "")


def test_a_damaged_file_is_named(tmp_path):
    manifest().write(manifest_path(tmp_path, NOON))
    later = manifest_path(tmp_path, NOON + timedelta(1))
    unknown_field = manifest().model_dump_json()[:-1].encode() + b', "surprise": 1}'
    for damage in (
        b"",
        b"{",
        b'{"schema_version": 2}',
        b"[]",
        b'{"state": "finished"}',
        b"\xff\xfe",
        unknown_field,
    ):
        later.write_bytes(damage)
        with pytest.raises(MedTasksError, match=later.name):
            read_manifests(tmp_path)
    assert [path.name for path in manifest_files(tmp_path)][1] == later.name


def test_what_cannot_be_seen_from_here(monkeypatch):
    here = process_of(os.getpid())
    assert (
        is_running(here),
        is_running(here.model_copy(update={"began": here.began - 1})),
    ) == (
        True,
        False,
    )
    gone = here.model_copy(update={"began": 1})
    endings = (RunState.FINISHED, RunState.WITH_FAILURES, RunState.INTERRUPTED)
    standings = [manifest(state, process=gone).standing for state in endings]
    assert standings == ["finished", "finished with failures", "interrupted"]
    for elsewhere in ({"place": "0123456789abcdef"}, {"place": None}, {"began": None}):
        process = here.model_copy(update=elsewhere)
        assert manifest(RunState.RUNNING, process=process).standing == "killed or still running"
    # A machine may show a user only the own processes; one of another user then neither runs nor does not.
    hidden = RunProcess(pid=2**30, began=1, place=here.place)
    assert is_running(hidden) is False

    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(process_records.os, "kill", refuse)
    assert is_running(hidden) is None


def test_the_filter_that_lost_most_counts():
    row = {
        "alias": "ours",
        "accuracy,reference": 0.5,
        **{
            f"{name}_samples,reference": value
            for name, value in (("scored", 8.0), ("failed", 1), ("unjudged", 3))
        },
        **{f"{name}_samples,robust": value for name, value in (("scored", 11), ("failed", 1))},
        "failed_samples_stderr,reference": "N/A",
    }
    assert counts_of(row) == SampleCounts(scored=8, failed=1, unjudged=3)
    assert counts_of(row).lost == 4
    assert counts_of({"accuracy,none": 0.5}) is None
    assert counts_of({"scored_samples,none": 5}) is None
    assert counts_of({"scored_samples,none": float("nan"), "failed_samples,none": 0}) is None


def test_limits():
    for limit, counts, is_allowed in (
        ("1%", SampleCounts(99, 1), True),
        ("1%", SampleCounts(98, 2), False),
        ("1%", SampleCounts(197, 2, 1), False),
        ("1%", SampleCounts(0, 0), True),
        ("0", SampleCounts(1000, 1), False),
        ("2", SampleCounts(1, 1, 1), True),
        ("2", SampleCounts(1, 1, 2), False),
        ("0.5 %", SampleCounts(199, 1), True),
        ("100%", SampleCounts(0, 9), True),
        (
            "2.28%",
            SampleCounts(2443, 57),
            True,
        ),  # 2.28 * 2,500 is 5,699.999999999999 in floating point
        ("2.28%", SampleCounts(2442, 58), False),
        ("0%", SampleCounts(0, 0), True),
    ):
        assert FailureLimit.parse(limit).allows(counts) is is_allowed, limit
    for text in ("", "%", "x", "-1", "1.5", "101%", "nan", "nan%", "inf%", "1%%"):
        with pytest.raises(MedTasksError, match="neither a number of samples"):
            FailureLimit.parse(text)
    assert str(SampleCounts(5, 1)) == "1 failed of 6 samples"
    assert str(SampleCounts(5, 1, 2)) == "1 failed and 2 unjudged of 8 samples"
    assert [str(FailureLimit.parse(text)) for text in ("2.5%", "7")] == ["2.5%", "7"]


def test_the_options_are_those_of_the_installed_harness(monkeypatch):
    from lmms_eval.__main__ import parse_eval_args

    monkeypatch.setattr("sys.argv", ["lmms_eval"])
    parser, _ = parse_eval_args()
    actions = [action for action in parser._actions if action.dest != "help"]
    theirs = {frozenset(action.option_strings): action.nargs == 0 for action in actions}
    assert {
        frozenset(action.option_strings): action.nargs == 0 for action in _parser()._actions
    } == theirs


def test_an_option_is_read_in_every_spelling():
    spelled = (
        ["--limit", "5"],
        ["--limit=5"],
        ["--lim", "5"],
        ["--lim=5"],
        ["--limit", "-1"],
        ["--limit", "many"],
    )

    assert [read_options(arguments).number("limit") for arguments in spelled] == [
        5,
        5,
        5,
        5,
        -1,
        None,
    ]
    assert read_options(["--process_docs_parallel=2"]).given == {"process_docs_parallel": "2"}


def test_an_option_given_twice_has_its_last_value():
    assert read_options(["--limit", "3", "--limit", "-1"]).number("limit") == -1


def test_unknown_arguments_are_kept_apart():
    assert read_options(["--model_args", "a=1", "b=2", "--log-samples"]).unknown == (
        "b=2",
        "--log-samples",
    )


def test_short_options_have_their_long_names():
    options = read_options(
        ["-b", "4", "-c", "cache", "-w", "-x", "-n3", "--process-docs-parallel", "2"]
    )
    values = {
        "batch_size": "4",
        "use_cache": "cache",
        "write_out": True,
        "predict_only": True,
        "repeats": "3",
    }
    assert options.given == values | {"process_docs_parallel": "2"}
    assert (
        options.flag("write_out"),
        options.flag("log_samples"),
        options.number("offset"),
    ) == (
        True,
        False,
        None,
    )


def test_values_in_pairs_may_hold_signs_of_equality():
    options = HarnessOptions(
        {"model_args": 'pretrained=a/b=c,h={"x": 1, "y": 2},q=\'1,2\',flag'}
    )
    assert options.pairs("model_args") == {
        "pretrained": "a/b=c",
        "h": '{"x": 1, "y": 2}',
        "q": "'1,2'",
    }
    assert options.pairs("wandb_args") == {}


def test_arguments_that_the_harness_refuses_are_refused():
    for arguments in (["--limit"], ["--log_s"], ["--write_out=yes"]):
        with pytest.raises(
            MedTasksError,
            match=r"lmms-eval does not accept these arguments: .*lmms_eval --help",
        ):
            read_options(arguments)


def test_a_config_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "model: hf_vlm\nlimit: 0.5\nlog_samples: true\nseed: [1, 2, 3, 4]\nenv: {A: 1, HF_TOKEN: x}\n"
    )
    options = read_options(["--config", str(path), "--limit", "3"])
    assert (options.text("model"), options.number("limit"), options.flag("log_samples")) == (
        "hf_vlm",
        3,
        True,
    )
    assert options.environment == {"A": "1", "HF_TOKEN": "x"}
    assert options.evaluations == 1
    assert seeds(options) == (1, 2, 3, 4)
    path.write_text("- limit: 1\n- limit: 2\n")
    assert read_options([f"--config={path}"]).evaluations == 2
    path.write_text("model_args: {base_url: 'http://x', azure_openai: true}\n")
    options = read_options(["--config", str(path)])
    assert options.model_arguments() == {"base_url": "http://x", "azure_openai": True}
    assert read_options([]).model_arguments() == {}
    for content in ("", "[]", "just text", "a: [", "- 1", "env: [1]\n", None):
        path.unlink() if content is None else path.write_text(content)
        with pytest.raises(MedTasksError, match=r"run\.yaml"):
            read_options(["--config", str(path)])


def test_seeds():
    for arguments, expected in (
        ([], (0, 1234, 1234, 1234)),
        (["--seed", "7"], (7, 7, 7, 7)),
        (["--seed", "None"], (None,) * 4),
        (["--seed", "1,2,3"], (1, 2, 3, 1234)),
        (["--seed", "0, none ,8,52"], (0, None, 8, 52)),
    ):
        assert seeds(read_options(arguments)) == expected
    for text in ("1,2", "x", "1,2,3,4,5", "1.5", ""):
        with pytest.raises(MedTasksError, match="--seed"):
            seeds(read_options([f"--seed={text}"]))


@each_row(
    "text",
    [
        "base_url=http://127.0.0.1:8000/v1,model=a",
        " model=a , base_url=http://x/?a=b ,",
        'a="x,base_url=http://y",b={"c": [1,2]},d=e',
        'a=\\",base_url=http://x,b=\\"',
        "a='\\',base_url=http://x,b='",
    ],
)
def test_arguments_of_the_model_are_read_as_the_harness_does(text):
    from lmms_eval.utils import simple_parse_args_string

    assert read_options(["--model_args", text]).model_arguments() == simple_parse_args_string(
        text
    )
