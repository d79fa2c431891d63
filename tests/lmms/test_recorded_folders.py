"""Folders of tasks that results name: whoever gives results away may have put code into one."""

import json

from medtasks.runs.result_files import recorded_folders

from ..cli.conftest import fails, medtasks  # noqa: F401  # fixtures
from ..made_up_runs import write_run
from ..runs.test_run import manifest
from ..tables import each_row
from .conftest import choice_yaml

NO_IMAGES = "!function medtasks.hooks.images.no_images"
EVIL = choice_yaml("TASK", doc_to_visual=NO_IMAGES, process_docs="!function evil.docs")
CODE = """import os, pathlib
pathlib.Path(os.environ["MARK"]).touch()
def docs(documents):
    return documents
"""


def given_away(folder, task, include, recorded_in):
    """Write results of ``task`` that name a folder below them, which holds a task of that name and its code."""
    run = write_run(folder, [task], 0.5, 1)
    (run / ".x").mkdir()
    (run / ".x" / "t.yaml").write_text(EVIL.replace("TASK", task))
    (run / ".x" / "evil.py").write_text(CODE)
    questions = [
        {"question": f"{row}?", "options": ["no", "yes"], "answer": "A"} for row in range(32)
    ]
    (run / ".x" / "questions.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in questions)
    )
    include = include.format(run=run)
    if recorded_in == "_results.json":
        (results,) = run.glob("*_results.json")
        content = json.loads(results.read_text())
        content["config"]["resolved_cli_args"] = {"include_path": include}
        results.write_text(json.dumps(content))
    else:
        model = {"name": run.name, "arguments": ""}
        manifest(
            run,
            {task: ("done", "")},
            state="finished",
            options={"include_path": include},
            model=model,
        )
    return run


def commands(run, task):
    samples = next(run.glob("*_samples_*.jsonl"))
    return [
        ["report", run],
        ["score", task, samples],
        ["score", task, run],
        ["compare", run, run],
    ]


@each_row(
    ("task", "include", "recorded_in"),
    [
        ("theirs", ".x", "_results.json"),
        ("mediconfusion", "{run}/.x", "_results.json"),
        ("theirs", "{run}/.x", "_run.json"),
    ],
)
def test_code_of_a_recorded_folder_does_not_run(
    task,
    include,
    recorded_in,
    sample,
    tmp_path,
    medtasks,  # noqa: F811
    fails,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setenv("MARK", str(tmp_path / "ran"))
    run = given_away(tmp_path / "run", task, include, recorded_in)
    monkeypatch.chdir(run)
    for command in commands(run, task):
        out = medtasks(*command).out
        assert not (tmp_path / "ran").exists(), command
        named = f"the run took tasks from {include.format(run=run)}, which is not loaded" in out
        assert named == (recorded_in == "_results.json")
    if (
        task == "mediconfusion"
    ):  # nor where the user trusts the folder: recorded replies are scored by our task
        for command in commands(run, task):
            fails(
                [*command, "--include_path", run / ".x"],
                "t.yaml has a task 'mediconfusion'",
                "rename it",
            )
        assert not (tmp_path / "ran").exists()
    else:
        assert medtasks("score", task, run, "--include_path", run / ".x").code == 0
        assert (tmp_path / "ran").exists()  # it is code that would run


def test_names_of_ours_are_refused_and_our_own_folder_is_not(
    sample,
    tmp_path,
    medtasks,  # noqa: F811
    fails,  # noqa: F811
):
    run = given_away(tmp_path / "variant", "mediconfusion_blind", ".x", "_results.json")
    fails(
        ["report", run, "--include_path", run / ".x"],
        "a task 'mediconfusion_blind', which is a name of ours",
    )
    run = write_run(tmp_path / "run", ["mediconfusion"], 0.5, 1)
    folder = medtasks("path").out.strip()
    assert medtasks("score", "mediconfusion", run, "--include_path", folder).code == 0


def test_what_is_recorded(tmp_path):
    files = {
        "x_results.json": "{",
        "y_results.json": "[" * 200_000,
        "1_samples_one.jsonl": "{}",
        "replies.jsonl": "",
    }
    for number, include in enumerate((["a", "b"], "b", None, {"c": 1}, 3)):
        config = {"resolved_cli_args": {"include_path": include}}
        files[f"{number}_results.json"] = json.dumps({"results": {}, "config": config})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert sorted(recorded_folders([tmp_path, tmp_path]))[:2] == ["a", "b"]
    assert recorded_folders([tmp_path / "1_samples_one.jsonl"]) == ["b"]
    assert recorded_folders([tmp_path / "replies.jsonl", tmp_path / "gone"]) == []
