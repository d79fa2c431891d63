"""Every command that reads a run, and each function for Python, says the same sentence about the same damage."""

import json
import shutil

import pytest

import medtasks as api
from medtasks.errors import MedTasksError, forget_warnings
from medtasks.runs.run import NO_RESULTS, NO_SAMPLES

from ..made_up_runs import write_run

TASK = "mediconfusion"


def samples_of(run):
    (path,) = run.glob(f"*_samples_{TASK}.jsonl")
    return path


@pytest.fixture
def commands(sample, tmp_path):
    """A run, and each command that reads it."""
    run, other = write_run(tmp_path / "a", [TASK], 0.6, 1), write_run(tmp_path / "b", [TASK], 0.8, 2)
    arguments = {"score": ["score", TASK, run], "compare": ["compare", run, other]}
    return run, arguments | {"report": ["report", run, "--json", tmp_path / "report.json"]}


@pytest.fixture
def said(commands, medtasks, warnings, tmp_path):
    """Run all commands, and what Python users call; return all that each one says."""

    def run():
        texts = {}
        for name, arguments in commands[1].items():
            forget_warnings()  # each command is a process of its own
            warnings.clear()
            ran = medtasks(*arguments)
            report = json.loads((tmp_path / "report.json").read_text()) if name == "report" else ""
            texts[name] = "\n".join([ran.out, ran.err, *warnings, *sentences_in(report)])
        forget_warnings()
        warnings.clear()
        try:
            api.compare(commands[0], tmp_path / "b")
            notes = api.read_run(commands[0]).notes
        except MedTasksError as error:
            notes = [str(error)]
        return texts | {"api": "\n".join([*warnings, *notes])}

    return run


def sentences_in(content):
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        return [text for item in content for text in sentences_in(item)]
    return [content] if isinstance(content, str) else []


def tear_last_line(run):
    path = samples_of(run)
    path.write_text(path.read_text()[:-20])
    return f"Torn lines, left out: 1 of {path}."


def lose_results(run):
    (results,) = run.glob("*_results.json")
    results.unlink()
    return NO_RESULTS


def lose_samples(run):
    samples_of(run).unlink()
    return NO_SAMPLES


def add_an_older_run(run):
    (older,) = run.glob("*_results.json")
    for path in list(run.iterdir()):
        shutil.copy(path, run / path.name.replace("20260102", "20260203"))
    return f"{older} holds older results of {TASK}, which are left out."


def take_samples_of_another_task(run):
    path = samples_of(run)
    path.write_text(json.dumps({"doc_id": 4711, "resps": ["A"], "filtered_resps": ["A"]}) + "\n")
    return f"{path} line 1: no document '4711' in the prepared dataset"


def add_a_manifest_of_a_newer_version(run):
    path = run / "20990101_000000_000000Z_run.json"
    path.write_text('{"schema_version": 99}')
    return f"the run manifest {path} is damaged or of another version of medtasks"


def cut_results(run):
    (results,) = run.glob("*_results.json")
    results.write_text(results.read_text()[:-20])
    return f"{results} cannot be read and is left out: it is cut off or damaged."


def write_two_runs_into_one_file(run):
    path = samples_of(run)
    with path.open("a") as lines:
        lines.write(json.dumps({"doc_id": 0, "resps": ["neither"], "filtered_resps": ["neither"]}) + "\n")
    return f"Lines that give a question another reply, left out: 1 of {path}, into which two runs wrote."


DAMAGES = (
    *(tear_last_line, lose_results, lose_samples, add_an_older_run, take_samples_of_another_task),
    *(add_a_manifest_of_a_newer_version, cut_results, write_two_runs_into_one_file),
)


def test_all_commands_say_the_same_of_damage(commands, said, tmp_path):
    run = commands[0]
    shutil.copytree(run, tmp_path / "whole")
    silent = {}
    for damage in DAMAGES:
        sentence = damage(run)
        silent[damage] = [name for name, text in said().items() if sentence not in text]
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "whole", run)
    assert silent == {damage: [] for damage in DAMAGES}


def test_a_reply_of_two_megabytes_costs_nothing_else(commands, medtasks):
    run, arguments = commands
    path = samples_of(run)
    first, *others = path.read_text().splitlines()
    line = json.loads(first)
    line["resps"] = line["filtered_resps"] = ["A or B? " + "hm" * 1_000_000]
    path.write_text("\n".join([json.dumps(line), *others, ""]))
    codes = {name: medtasks(*command).code for name, command in arguments.items()}
    assert set(codes.values()) == {0}, codes
    assert api.score(TASK, {"0": line["resps"][0]}).answered == 1
    assert len(api.read_run(run).samples()) > len(others)
