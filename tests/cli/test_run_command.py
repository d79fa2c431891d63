"""``medtasks run`` as a command: its manifest, exit codes and last words, with a stand-in for the harness."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest

from medtasks.data.prepare import prepare_dataset
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import SourceError
from medtasks.home import own_tasks_folder
from medtasks.runs.run_manifest import read_manifests

from ..tables import each_row
from ..waiting import PATIENCE, wait_until

MODEL = ["--model", "dummy"]
MODULE = [sys.executable, "-m", "medtasks.cli.main"]
# Tasks do what their names say; every process leaves its number.
HARNESS = """
    import json, os, pathlib, signal, sys, time
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    value = dict(zip(sys.argv, sys.argv[1:]))
    output, tasks = pathlib.Path(value["--output_path"]), value["--tasks"].split(",")
    (pathlib.Path(__file__).parent / "harness.pid").write_text(str(os.getpid()))
    if "fails" in tasks:
        sys.exit(0)
    if "killed" in tasks:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hangs" in tasks:
        if tasks == ["hangs"]:
            (pathlib.Path(__file__).parent / "hanging").touch()
            time.sleep(600)
        sys.exit(0)
    folder = output / "model"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*_results.json")))
    (folder / f"{number}_results.json").write_text(json.dumps({"results": dict.fromkeys(tasks, {})}))
    if "--log_samples" in sys.argv:
        for task in tasks:
            (folder / f"{number}_samples_{task}.jsonl").write_text("{}")
"""


@pytest.fixture(autouse=True)
def _tasks():
    """Names have to be those of tasks."""
    own_tasks_folder().mkdir()
    for name in ("one", "two", "three", "fails", "killed", "hangs", "last"):
        (own_tasks_folder() / f"{name}.yaml").write_text(
            f"task: {name}\ngeneration_kwargs: {{until: []}}\n"
        )


@pytest.fixture
def launcher(tmp_path):
    (tmp_path / "harness.py").write_text(textwrap.dedent(HARNESS))
    return [f"--launcher={shlex.join([sys.executable, str(tmp_path / 'harness.py')])}", *MODEL]


@pytest.fixture
def begin(tmp_path, launcher):
    """Start the command in a process group of its own, as a terminal does, and wait until its last task hangs."""
    started = []

    def start(tasks):
        out = (tmp_path / "printed").open("w")
        arguments = ["run", "--tasks", tasks, "--output_path", str(tmp_path / "out"), *launcher]
        started.append(
            subprocess.Popen(
                [*MODULE, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        wait_until((tmp_path / "hanging").exists, started[-1])
        return started[-1]

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait()


def outcomes(manifest):
    return {name: str(record.outcome) for name, record in manifest.tasks.items()}


@pytest.fixture
def finished_run(medtasks, tmp_path, launcher):
    """Run two tasks; return what the command printed and the manifest."""
    arguments = "model=gpt-4o,api_key=planted-secret"
    ran = medtasks(
        *("run", "--tasks", "one,two", "--output_path", tmp_path / "my out", *launcher),
        *("--log_samples", "--model", "openai", "--model_args", arguments, "--seed", "5"),
    )
    assert ran.code == 0
    (manifest,) = read_manifests(tmp_path / "my out")
    return ran.out, manifest


def test_a_run_ends_with_the_command_of_its_report(finished_run, tmp_path):
    out, manifest = finished_run

    assert f"manifest: {manifest.path}" in out
    assert out.splitlines()[-1] == f"report: medtasks report '{tmp_path / 'my out'}'"


def test_a_manifest_names_the_files_of_each_task(finished_run):
    _, manifest = finished_run

    assert manifest.standing == "finished"
    assert outcomes(manifest) == {"one": "done", "two": "done"}
    assert manifest.tasks["two"].results == "model/0_results.json"
    assert manifest.tasks["two"].samples == "model/0_samples_two.jsonl"


def test_a_manifest_says_what_was_run(finished_run):
    _, manifest = finished_run

    assert manifest.seeds.model_dump() == {"python": 5, "numpy": 5, "torch": 5, "fewshot": 5}
    assert manifest.command[:4] == ("medtasks", "run", "--tasks", "one,two")
    assert "--log_samples" in manifest.arguments
    assert manifest.seconds >= manifest.processes[0].seconds > 0


def test_a_manifest_holds_no_secret(finished_run):
    _, manifest = finished_run

    assert "planted-secret" not in manifest.path.read_text()
    assert manifest.model.name == "openai"
    assert manifest.model.arguments == "model=gpt-4o,api_key=***"


def test_the_harness_is_told_the_run_which_goes_on_after_a_stop(medtasks, tmp_path, launcher):
    script = tmp_path / "harness.py"
    write = f"open({str(tmp_path / 'ids')!r}, 'a').write(os.environ['MEDTASKS_RUN'] + chr(10))"
    script.write_text(f"import os\n{write}\n{textwrap.dedent(HARNESS)}")
    for tasks in ("killed", "one,killed", "one", "one"):
        medtasks("run", "--tasks", tasks, "--output_path", tmp_path / "out", *launcher)
    first, *others = (manifest.run for manifest in read_manifests(tmp_path / "out"))
    assert others[0] == first  # the first left nothing
    assert (
        len({first, *others[1:]}) == 3
    )  # the second left results of a task, and so did the third
    told = list(dict.fromkeys((tmp_path / "ids").read_text().split()))
    assert told == [first, *others[1:]]


@pytest.fixture
def troubled_run(medtasks, tmp_path, launcher):
    """Run tasks of which one fails, one is killed and one has no data."""
    tasks = "one,fails,killed,mediconfusion,last"
    ran = medtasks("run", "--tasks", tasks, "--output_path", tmp_path / "out", *launcher)
    (manifest,) = read_manifests(tmp_path / "out")
    return ran, manifest


def test_tasks_without_results_cost_themselves_alone(troubled_run):
    ran, manifest = troubled_run

    assert ran.code == 1
    assert (
        "3 of 5 tasks without results; the others are complete; the harness ended with exit code 0"
        in ran.err
    )
    assert manifest.standing == "finished with failures"
    failed = dict.fromkeys(("fails", "killed"), "failed")
    assert outcomes(manifest) == {
        "one": "done",
        **failed,
        "mediconfusion": "left out",
        "last": "done",
    }


def test_tasks_without_results_have_a_reason(troubled_run):
    ran, manifest = troubled_run

    assert "; the harness was ended by SIGKILL" in ran.err
    assert "failed: killed: the harness was ended by SIGKILL" in ran.out
    assert "SIGKILL" in manifest.tasks["killed"].reason
    assert "exit code 0" in manifest.tasks["fails"].reason
    assert "medtasks data prepare mediconfusion" in manifest.tasks["mediconfusion"].reason
    assert os.environ["MEDTASKS_HOME"] not in manifest.path.read_text()


def test_samples_are_kept_whether_or_not_they_were_asked_for(troubled_run):
    _, manifest = troubled_run
    assert manifest.tasks["one"].samples == "model/0_samples_one.jsonl"


def test_tasks_that_failed_together_are_run_alone(troubled_run):
    _, manifest = troubled_run
    asked = [["one", "fails", "killed", "last"], ["one"], ["fails"], ["killed"], ["last"]]
    assert [list(process.tasks) for process in manifest.processes] == asked


def test_without_a_task_that_can_run_no_process_starts(medtasks, tmp_path, launcher):
    none = medtasks(
        "run", "--tasks", "mediconfusion", "--output_path", tmp_path / "none", *launcher
    )

    assert (none.code, "none of the tasks in 'mediconfusion' can run" in none.err) == (1, True)
    assert read_manifests(tmp_path / "none")[0].processes == ()


def test_a_task_without_its_judge_is_left_out_before_anything_is_loaded(
    medtasks, sample, tmp_path, launcher
):
    ran = medtasks(
        "run",
        "--tasks",
        "mediconfusion_ff,mediconfusion",
        "--output_path",
        tmp_path / "out",
        *launcher,
    )
    (manifest,) = read_manifests(tmp_path / "out")
    cause = manifest.tasks["mediconfusion_ff"].reason
    assert (ran.code, outcomes(manifest)) == (
        1,
        {"mediconfusion_ff": "left out", "mediconfusion": "done"},
    )
    assert [list(process.tasks) for process in manifest.processes] == [["mediconfusion"]]
    assert f"left out mediconfusion_ff: {cause}" in ran.out
    assert cause.startswith(
        "'mediconfusion_ff' needs an LLM judge and MEDTASKS_JUDGE_BASE_URL and MEDTASKS_JUDGE_MODEL"
    )
    assert (
        "MEDTASKS_JUDGE_MODEL=gpt-4o MEDTASKS_JUDGE_API_KEY=<your key> (an endpoint on this machine"
        in cause
    )


@pytest.fixture
def preparing(monkeypatch, sample_home):
    """A stand-in for downloads: only MediConfusion arrives, as the sample; lists the names of what was asked for."""
    asked = []
    prepare = prepare_dataset.prepare

    def run(name, options):
        asked.append(name)
        if name != "mediconfusion":
            raise SourceError("no answer")
        return prepare(name, Options(sample_home / "source" / "mediconfusion", sample=True))

    monkeypatch.setattr(prepare_dataset, "prepare", run)
    return asked


@pytest.fixture
def prepared_run(medtasks, tmp_path, launcher, preparing):
    """Run tasks and prepare their data before."""

    def run(tasks):
        output = ["--output_path", tmp_path / "out"]
        return medtasks("run", "--prepare", "--tasks", tasks, *output, *launcher)

    return run


def test_missing_data_are_prepared_before_a_run(prepared_run, preparing, tmp_path):
    ran = prepared_run("one,mediconfusion,mediconfusion_gd_blind,multimedeval_medqa")

    (manifest,) = read_manifests(tmp_path / "out")
    done = {"one": "done", "mediconfusion": "done", "mediconfusion_gd_blind": "done"}
    assert (ran.code, outcomes(manifest)) == (1, {**done, "multimedeval_medqa": "left out"})
    assert preparing == ["mediconfusion", "multimedeval_medqa"]
    assert "not prepared: multimedeval_medqa: no answer" in ran.out


def test_what_can_be_run_is_not_prepared_again(prepared_run, preparing):
    """This is so even of the sample."""
    prepared_run("mediconfusion")

    ran = prepared_run("mediconfusion")

    assert (ran.code, len(preparing)) == (0, 1)
    assert "mediconfusion  sample" in ran.out


def test_a_task_without_a_dataset_needs_no_preparation(prepared_run):
    ran = prepared_run("one")
    assert (ran.code, "dataset " in ran.out) == (0, False)


@each_row(
    "tasks, options, sentence",
    [
        ("mediconfusion", ["--model", "dumy"], "there is no model 'dumy'"),
        ("mediconfusion,twoo", [], "there is no task 'twoo'"),
        ("mediconfusion", ["--shard", "1/2"], "--prepare and --shard do not go together"),
        (
            "medevalkit",
            [],
            "14,257.5 MB in all, as stated for 6 of 9 datasets; add --yes to do so",
        ),
    ],
)
def test_nothing_is_downloaded_for_a_run_that_cannot_start(
    fails, tmp_path, launcher, preparing, tasks, options, sentence
):
    fails(
        [
            "run",
            "--prepare",
            "--tasks",
            tasks,
            "--output_path",
            tmp_path / "out",
            *launcher,
            *options,
        ],
        sentence,
    )
    assert preparing == []
    assert not (tmp_path / "out").exists()


def test_a_login_of_physionet_reaches_neither_the_harness_nor_a_record(
    medtasks, tmp_path, launcher, monkeypatch
):
    script = tmp_path / "harness.py"
    write = f"open({str(tmp_path / 'variables')!r}, 'w').write(repr(dict(os.environ)))"
    script.write_text(f"import os\n{write}\n{textwrap.dedent(HARNESS)}")
    for name in ("USER", "PASSWORD"):
        monkeypatch.setenv(f"MEDTASKS_PHYSIONET_{name}", f"planted-{name}")
    ran = medtasks("run", "--tasks", "one", "--output_path", tmp_path / "out", *launcher)
    (manifest,) = read_manifests(tmp_path / "out")
    assert "MEDTASKS_HOME" in (tmp_path / "variables").read_text()
    for text in (
        (tmp_path / "variables").read_text(),
        manifest.path.read_text(),
        ran.out + ran.err,
    ):
        assert "planted" not in text


def test_warnings_of_a_run_are_recorded(medtasks, tmp_path, launcher):
    ran = medtasks(
        "run", "--tasks", "one", "--output_path", tmp_path / "out", *launcher, "--limit=3.5"
    )

    (manifest,) = read_manifests(tmp_path / "out")
    sentences = [notice.sentence for notice in manifest.notices]
    assert any("--limit 3.5 means 3 rows" in sentence for sentence in sentences)
    assert all(f"warning {sentence}" in ran.out for sentence in sentences)


def test_earlier_results_are_not_this_runs(medtasks, tmp_path, launcher):
    output = ["--output_path", tmp_path / "out", *launcher]
    medtasks("run", "--tasks", "one", *output)

    ran = medtasks("run", "--tasks", "one,fails", *output)

    first, second = read_manifests(tmp_path / "out")
    assert ran.code == 1
    assert (first.tasks["one"].results, second.tasks["one"].results) == (
        "model/0_results.json",
        "model/1_results.json",
    )
    assert outcomes(second) == {"one": "done", "fails": "failed"}


@each_row(
    "arguments, sentence",
    [
        (["--tasks", ", "], "--tasks names no task"),
        (
            ["--limit", "0.5"],
            "--limit 0.5 is a share, and the harness applies the first task's number of rows to all",
        ),
        (["--launcher=env 'x"], "--launcher env 'x"),
        (["--limt", "4"], "there is no option '--limt'; did you mean '--limit'?"),
        (
            ["--model_args", "a=1", "b=2"],
            "'b=2' belongs to no option; a value with blanks needs quotes",
        ),
        (["--api_keyy=PLANTED"], "there is no option '--api_keyy'; see medtasks run --help"),
    ],
)
def test_what_is_refused_does_not_start(fails, tmp_path, launcher, arguments, sentence):
    fails(
        ["run", "--tasks", "one,two", "--output_path", tmp_path / "out", *launcher, *arguments],
        sentence,
    )
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "harness.pid").exists()


@each_row("of_option", [True, False])
def test_a_shard_is_recorded_and_told_to_the_harness(
    medtasks, tmp_path, monkeypatch, of_option
):
    script = tmp_path / "harness.py"
    tells = '\n(output / "shard").write_text(os.environ["MEDTASKS_SHARD"])\n'
    script.write_text(textwrap.dedent(HARNESS) + tells)
    launched = [f"--launcher={shlex.join([sys.executable, str(script)])}", *MODEL]
    arguments = ["run", "--tasks", "one", *launched, "--output_path", tmp_path / "out"]
    if of_option:
        arguments += ["--shard", "3/16"]
    else:
        monkeypatch.setenv("MEDTASKS_SHARD", "3/16")

    assert medtasks(*arguments).code == 0

    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.standing == "finished"
    assert (manifest.shard.index, manifest.shard.count) == (3, 16)
    assert shlex.join(manifest.command).endswith(f"--shard 3/16 {shlex.join(MODEL)}")
    assert (tmp_path / "out" / "shard").read_text() == "3/16"


def test_a_shard_that_names_no_part_of_the_data_is_refused(
    fails, tmp_path, launcher, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_SHARD", "4/16")
    arguments = ["run", "--tasks", "one", *launcher, "--output_path", tmp_path / "no"]

    fails([*arguments, "--limit", "4"], "--shard 4/16 chooses the rows", "leave out --limit")
    fails([*arguments, "--shard", "5/4"], "--shard 5/4 names no part of the data")

    assert not (tmp_path / "no").exists()


def test_the_error_of_the_harness_is_the_last_line(fails, tmp_path):
    error = "no model in the folder $MEDTASKS_HOME/x, api_key=PLANTED"
    code = "import os; from medtasks.lmms.harness_process import end_after; "
    code += f"end_after(ValueError(os.path.expandvars({error!r})), debug=False)"
    launcher = f"--launcher={shlex.join([sys.executable, '-c', code])}"
    last = "1 of 1 tasks without results; ValueError: no model in the folder $MEDTASKS_HOME/x, api_key=***"
    ran = fails(
        ["run", "--tasks", "one", "--output_path", tmp_path / "out", launcher, *MODEL], last
    )
    assert "failed: one: ValueError: no model" in ran.out
    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.tasks["one"].reason.startswith("ValueError: no model")


# The harness writes a line per sample and goes on where it cannot; a file may grow to 2,000 bytes.
FULL = """
    import json, pathlib, resource, signal, sys
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    value = dict(zip(sys.argv, sys.argv[1:]))
    folder, tasks = pathlib.Path(value["--output_path"], "model"), value["--tasks"].split(",")
    folder.mkdir(parents=True, exist_ok=True)
    counts = {task: {"original": 50, "effective": 40} for task in tasks}
    results = {"results": dict.fromkeys(tasks, {}), "n-samples": counts, "config": {"offset": OFFSET}}
    try:
        (folder / "0_results.json").write_text(" " * BLANKS + json.dumps(results))
    except OSError:
        pass
    for task in tasks:
        try:
            for row in range(40):
                with (folder / f"0_samples_{task}.jsonl").open("a") as file:
                    file.write(json.dumps({"doc_id": row, "text": "x" * LETTERS}) + "\\n")
        except OSError:
            pass
"""


@each_row(
    "settings, sentences",
    [
        (
            {"LETTERS": 100},
            ["0_samples_one.jsonl holds 15 of 40 samples", "the scores are kept"],
        ),
        ({"LETTERS": 100, "OFFSET": 45}, []),  # five rows are left
        ({"BLANKS": 2000}, ["2 of 2 tasks without results; 0_results.json is cut off"]),
        ({}, []),
    ],
)
def test_a_full_disk(medtasks, tmp_path, settings, sentences):
    script = FULL
    for name, number in {"LETTERS": 0, "OFFSET": 0, "BLANKS": 0, **settings}.items():
        script = script.replace(name, str(number))
    (tmp_path / "harness.py").write_text(textwrap.dedent(script))
    launcher = f"--launcher={shlex.join([sys.executable, str(tmp_path / 'harness.py')])}"
    ran = medtasks(
        "run", "--tasks", "one,two", "--output_path", tmp_path / "out", launcher, *MODEL
    )
    (manifest,) = read_manifests(tmp_path / "out")
    last = ran.err.splitlines()[-1] if sentences else ""
    assert ran.code == int(bool(sentences))
    assert [
        sentence
        for sentence in (*sentences, "make room" if sentences else "")
        if sentence not in last
    ] == []
    assert manifest.standing == ("finished with failures" if sentences else "finished")
    assert len(manifest.processes) == 1  # a second round would write no more


def test_a_file_in_place_of_the_output_folder_starts_nothing(fails, tmp_path, launcher):
    (tmp_path / "file").write_text("")
    fails(
        ["run", "--tasks", "one", "--output_path", tmp_path / "file", *launcher],
        str(tmp_path / "file"),
    )
    assert not (tmp_path / "harness.pid").exists()


def test_a_launcher_that_cannot_start_interrupts_the_run(fails, tmp_path):
    run = ["run", "--tasks", "one", "--output_path", tmp_path / "out", *MODEL]

    fails([*run, "--launcher=nothing-here"], "--launcher")

    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.standing == "interrupted"
    assert "cannot start 'nothing-here'" in manifest.why


@pytest.mark.parametrize(
    ("number", "code", "why"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")],
)
def test_a_stopped_run_is_called_interrupted(begin, tmp_path, number, code, why):
    process = begin("one,hangs,two")
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    assert process.wait(PATIENCE) == code

    (manifest,) = read_manifests(tmp_path / "out")
    assert (manifest.standing, manifest.why) == ("interrupted", why)
    assert outcomes(manifest) == {"one": "done", "hangs": "not run", "two": "not run"}
    assert manifest.tasks["one"].results == "model/0_results.json"
    assert manifest.processes[-1].exit_code == -number
    assert manifest.ended is not None

    printed = (tmp_path / "printed").read_text()
    assert f"report: medtasks report {tmp_path / 'out'}" in printed
    assert "Traceback" not in printed
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "harness.pid").read_text()), 0)


def test_a_killed_run_is_called_killed(begin, medtasks, launcher, tmp_path):
    process = begin("one,hangs")
    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.standing == "still running"

    ran = medtasks(
        "run", "--tasks", "mediconfusion", "--output_path", tmp_path / "out", *launcher
    )
    assert f"warning another run (process {process.pid}) is still writing into" in ran.out
    read_manifests(tmp_path / "out")[-1].path.unlink()

    process.kill()
    os.waitid(
        os.P_PID, process.pid, os.WEXITED | os.WNOWAIT
    )  # it has ended, and stays in the list of processes
    assert read_manifests(tmp_path / "out")[0].standing == "killed"

    process.wait()
    (manifest,) = read_manifests(tmp_path / "out")
    assert (manifest.state, manifest.standing, manifest.ended) == ("running", "killed", None)
    assert outcomes(manifest) == {"one": "done", "hangs": "not run"}
    assert manifest.processes[-1].tasks == ("hangs",)


@pytest.fixture
def call(sample, tmp_path, launcher):
    return ["run", "--tasks", "mediconfusion", "--output_path", tmp_path / "out", *launcher]


def test_a_primary_outcome_that_does_not_exist_is_refused(fails, call, tmp_path):
    for primary, sentence in (
        (
            "mediconfusio:set_accuracy",
            "unknown task of --tasks 'mediconfusio'; did you mean 'mediconfusion'",
        ),
        (
            "mediconfusion:set_acuracy",
            "unknown metric 'set_acuracy'; did you mean 'set_accuracy'",
        ),
    ):
        fails([*call, "--primary", primary], sentence)
    fails(
        [*call, "--margin", "0.1"],
        "--margin is between 0 and 1, and belongs to --primary TASK:METRIC",
    )
    assert not (tmp_path / "out").exists()


@pytest.fixture
def planned(medtasks, call, tmp_path):
    """Run with the primary outcome of a plan; return the plan and the manifest."""
    file = tmp_path / "plan.json"
    medtasks("plan", "mediconfusion", "--against", "0.6", "--margin", "0.1", "--json", file)
    medtasks(*call, "--primary", file)
    (manifest,) = read_manifests(tmp_path / "out")
    return json.loads(file.read_text()), manifest


def test_a_primary_outcome_is_that_of_the_plan(planned):
    plan, manifest = planned

    assert (manifest.primary.task, manifest.primary.metric, manifest.primary.margin) == (
        "mediconfusion", "set_accuracy", 0.1,
    )  # fmt: skip
    assert manifest.primary.planned == {
        "needed_for_margin": plan["needed_for_margin"],
        "power": 0.8,
    }


def test_a_primary_outcome_is_stated_before_the_first_run(planned, fails, call):
    fails(
        [*call, "--primary", "mediconfusion:individual_accuracy"],
        "states set_accuracy of mediconfusion, margin 0.1",
    )
    fails(call, "a primary outcome is stated before the first run of a folder")


def test_copies_of_an_earlier_run_have_no_stated_primary_outcome(planned):
    _, manifest = planned

    copied = manifest.tasks["mediconfusion"].model_copy(update={"copied_samples": 1})

    assert (
        manifest.model_copy(update={"tasks": {"mediconfusion": copied}}).stated_primary is None
    )
