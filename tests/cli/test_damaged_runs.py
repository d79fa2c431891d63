"""Every command that reads a run, and each function for Python, says the same sentence about the same damage."""

import json
import shutil

import pytest

import medtasks as api
from medtasks.errors import MedTasksError, forget_warnings
from medtasks.runs.run import NO_RESULTS, NO_SAMPLES

from ..made_up_runs import write_run

TASK = "mediconfusion"


@pytest.fixture
def commands(sample, tmp_path):
    run, other = write_run(tmp_path / "a", [TASK], 0.6, 1), write_run(tmp_path / "b", [TASK], 0.8, 2)
    arguments = {"score": ["score", TASK, run], "compare": ["compare", run, other]}
    return run, arguments | {"report": ["report", run, "--json", tmp_path / "report.json"]}


@pytest.fixture
def sentences(commands, medtasks, warnings, tmp_path):
    """Run all commands, and the functions for Python; return everything that each one says."""

    def run():
        texts = {}
        for name, arguments in commands[1].items():
            forget_warnings()  # each command is a process of its own
            warnings.clear()
            ran = medtasks(*arguments)
            report = (tmp_path / "report.json").read_text() if name == "report" else ""
            texts[name] = "\n".join([ran.out, ran.err, *warnings, report])
        forget_warnings()
        warnings.clear()
        try:
            api.compare(commands[0], tmp_path / "b")
            notes = api.read_run(commands[0]).notes
        except MedTasksError as error:
            notes = [str(error)]
        return texts | {"python": "\n".join([*warnings, *notes])}

    return run


def damages(run):
    """Return sentences about damage, and the texts of the files that bring it about; None removes one."""
    (samples,), (results,) = run.glob(f"*_samples_{TASK}.jsonl"), run.glob("*_results.json")
    text, newer = samples.read_text(), run / "20990101_000000_000000Z_run.json"
    unknown, second = (
        json.dumps({"doc_id": number, "resps": ["neither"], "filtered_resps": ["neither"]}) + "\n"
        for number in (4711, 0)
    )
    copies = {run / path.name.replace("20260102", "20260203"): path.read_text() for path in run.iterdir()}
    return {
        f"Torn lines, left out: 1 of {samples}.": {samples: text[:-20]},
        NO_RESULTS: {results: None},
        NO_SAMPLES: {samples: None},
        f"{results} holds older results of {TASK}, which are left out.": copies,
        f"{samples} line 1: no document '4711' in the prepared dataset": {samples: unknown},
        f"the run manifest {newer} is damaged or of another version of medtasks": {newer: '{"schema_version": 99}'},
        f"{results} cannot be read and is left out: it is cut off or damaged.": {results: results.read_text()[:-20]},
        f"Lines that give a question another reply, left out: 1 of {samples}, into which two runs wrote.": {
            samples: text + second
        },
    }


def test_all_commands_say_the_same_of_damage(commands, sentences, tmp_path):
    run = commands[0]
    shutil.copytree(run, tmp_path / "whole")
    silent = {}
    for sentence, files in damages(run).items():
        for path, text in files.items():
            path.unlink() if text is None else path.write_text(text)
        words = sentence.rstrip(".")  # the report joins sentences
        silent[sentence] = [name for name, texts in sentences().items() if words not in texts]
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "whole", run)
    assert not any(silent.values()), silent


def test_a_reply_of_two_megabytes_costs_nothing_else(commands, medtasks):
    run, arguments = commands
    (path,) = run.glob(f"*_samples_{TASK}.jsonl")
    first, *others = path.read_text().splitlines()
    line = json.loads(first)
    line["resps"] = line["filtered_resps"] = ["A or B? " + "hm" * 1_000_000]
    path.write_text("\n".join([json.dumps(line), *others, ""]))
    assert [medtasks(*command).code for command in arguments.values()] == [0, 0, 0]
    assert api.score(TASK, {"0": line["resps"][0]}).answered == 1
    assert len(api.read_run(run).samples()) > len(others)
