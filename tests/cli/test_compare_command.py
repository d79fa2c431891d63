"""``medtasks compare``, and the same sentences of every command that reads a damaged run."""

import json
import shutil

import pytest

import medtasks as api
from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError, forget_warnings
from medtasks.runs.reply_origins import COPIED, KEPT, ORIGIN
from medtasks.runs.run import NO_RESULTS, NO_SAMPLES

from .. import tiny_multimedeval
from ..made_up_runs import write_run
from ..scores.two_runs import losses, own_tasks, write_replies
from ..tables import each_row
from .conftest import rows_of


@pytest.fixture
def run_of(sample, tmp_path):
    """Write a run that is right on some questions of the sample."""

    def write(name, right=lambda row: True, rows=range(32)):
        path = tmp_path / f"{name}.jsonl"
        other = {"A": "B", "B": "A"}
        with path.open("w") as file:
            for row, document in enumerate(load_documents("mediconfusion")):
                reply = document["answer"] if right(row) else other[document["answer"]]
                if row in rows:
                    file.write(
                        json.dumps({"doc_id": document["doc_id"], "reply": reply}) + "\n"
                    )
        return path

    return write


@pytest.fixture
def worse_and_better(run_of):
    """A run that is wrong on the first 16 questions, and a right one of 30 questions."""
    return run_of("worse", lambda row: row >= 16), run_of("better", rows=range(30))


@pytest.fixture
def compared(medtasks, worse_and_better, tmp_path):
    """Compare the two runs; return what was printed and the JSON."""
    file = tmp_path / "found.json"
    ran = medtasks("compare", "mediconfusion", *worse_and_better, "--json", file)
    assert (ran.code, ran.err) == (0, "")
    return ran.out, json.loads(file.read_text(), parse_constant=pytest.fail)


def test_the_compared_documents_are_counted(compared, worse_and_better):
    worse, better = worse_and_better
    out, found = compared

    assert f"A: {worse}\nB: {better}\n" in out
    assert found["runs"] == {"A": str(worse), "B": str(better)}
    assert "30 of 32 documents answered in both are compared" in out
    assert "2 answered in A only, 0 in B only, 0 in neither" in out


def test_the_data_and_settings_of_a_comparison_are_recorded(compared):
    out, found = compared

    assert "SAMPLE DATA" in out.splitlines()[-1]
    assert len(found["data"]["fingerprint"]) == 12
    assert found["settings"] == {"alpha": 0.05, "power": 0.8, "draws": 10_000, "seed": 20261121}


def test_main_scores_are_compared_under_each_rule(compared):
    out, found = compared

    metrics = ["set_accuracy", "individual_accuracy"]
    assert [one["metric"] for one in found["comparisons"]] == metrics * 2
    assert [one["rule"] for one in found["comparisons"]] == ["reference"] * 2 + ["robust"] * 2
    assert rows_of(out)["B - A"] == ["+53.3 pts"]


def test_scores_are_tested_by_pairs_and_corrected(compared):
    out, found = compared

    sets = found["comparisons"][0]
    assert (sets["samples"], sets["first"], sets["second"]) == (15, pytest.approx(7 / 15), 1)
    assert sets["test"] == "dyadic t"
    assert sets["p"] == pytest.approx(0.0155934915, rel=1e-6)
    assert sets["p_holm"] == pytest.approx(2 * sets["p"])
    assert "corrected for all 2 tests" in out


def test_a_comparison_is_summarised_in_one_sentence(compared):
    out, found = compared

    assert found["summary"] == [
        "On mediconfusion (15 pairs), B has set_accuracy 100.0% and A 46.7% under reference: difference +53.3 pts, "
        "95 % interval (not corrected) +13.0 to +93.6 pts, p = 0.0156 (Holm 0.0312): B is higher."
    ]
    assert found["summary"][0] in out


def test_rules_that_read_alike_are_tested_once(compared):
    out, found = compared

    assert [one["same_as"] for one in found["comparisons"]] == [
        "",
        "",
        "reference",
        "reference",
    ]
    assert (
        "robust gives every sample the same set_accuracy, individual_accuracy as reference"
        in out
    )


def test_equal_replies_and_answers_are_counted(compared):
    out, _ = compared

    lines = "  replies  14 of 30 (46.7%) equal\n  answers  14 of 30 (46.7%) equal, read by reference, robust\n"
    assert lines in out


def test_one_metric_of_three_runs_is_compared_in_pairs(medtasks, run_of):
    runs = [run_of(str(shift), lambda row, shift=shift: row % 4 < shift) for shift in (1, 2, 4)]

    ran = medtasks("compare", "mediconfusion", *runs, "--metric", "set_accuracy")

    assert ran.code == 0
    assert "corrected for all 3 tests" in ran.out
    assert "individual_accuracy" not in ran.out
    assert all(f"\n{pair}: " in ran.out for pair in ("A and B", "A and C", "B and C"))


def test_a_run_does_not_differ_from_itself(medtasks, run_of, tmp_path):
    run = run_of("run", lambda row: row % 4 < 1)

    ran = medtasks("compare", "mediconfusion", run, run, "--json", tmp_path / "found.json")

    assert "n/a" in ran.out
    assert "n/a to n/a" not in ran.out
    assert "not shown to differ" in ran.out
    found = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    numbers = ("difference", "p", "p_holm", "detectable")
    assert {tuple(test[name] for name in numbers) for test in found["comparisons"]} == {
        (0, 1, 1, None)
    }


def test_runs_of_a_comparison_are_counted(fails, run_of, runs):
    a, b = runs
    fails(["compare", a, "--equivalence", "0.01"], "expected two runs, but got 1")
    fails(["compare", a, b, a, "--equivalence", "0.01"], "expected two runs, but got 3")
    fails(
        ["compare", "mediconfusion", run_of("first", rows=range(10))],
        "expected 2 to 26 runs to compare, but got 1",
    )


def test_a_margin_is_a_fraction(fails, runs):
    fails(
        ["compare", *runs, "--margin", "5"], "the margin 5 is no fraction between 1e-06 and 1"
    )
    fails(
        ["compare", *runs, "--equivalence", "1e-300"],
        "the margin 1e-300 is no fraction between 1e-06 and 1",
    )


def test_runs_of_different_prompts_are_not_equivalent(fails, runs):
    alike = ["compare", "letters", *runs, "--equivalence", "0.01"]
    fails(alike, "the runs gave different prompts", "run both with the same data, task file")


def test_a_comparison_is_not_written_over_a_folder(fails, run_of, tmp_path):
    first = run_of("first", rows=range(10))
    fails(
        ["compare", "mediconfusion", first, first, "--json", tmp_path],
        f"cannot write {tmp_path}",
    )


def test_runs_on_other_data_are_not_compared(fails, run_of, tmp_path):
    run = run_of("20260101_000000_samples_mediconfusion")
    config = {"metadata": {"data": {"fingerprint": "0123456789ab"}}}
    results = {"results": {}, "configs": {"mediconfusion": config}}
    (tmp_path / "20260101_000000_results.json").write_text(json.dumps(results))

    fails(
        ["compare", "mediconfusion", run, run],
        "was made on data with fingerprint 0123456789ab",
        "MEDTASKS_HOME",
    )


def test_credentialed_runs_show_no_document(medtasks, tmp_path):
    tiny_multimedeval.prepare("mimic_cxr_report")
    documents = load_documents("multimedeval_mimic_cxr_report")
    runs = []
    for name, reply in (("one", "canary clear lungs"), ("two", "canary effusion on the left")):
        runs.append(tmp_path / f"{name}.jsonl")
        runs[-1].write_text(
            "".join(
                json.dumps({"doc_id": d["doc_id"], "reply": reply}) + "\n" for d in documents
            )
        )

    asked = [
        "--metric",
        "bleu_1",
        "--metric",
        "invalid_rate",
        "--json",
        tmp_path / "found.json",
    ]

    ran = medtasks("compare", "multimedeval_mimic_cxr_report", *runs, *asked)

    assert ran.code == 0, ran.err
    assert "bleu_1" in ran.out
    shown = ran.out + ran.err + (tmp_path / "found.json").read_text()
    assert "canary" not in shown
    for document in documents:
        for column in ("doc_id", "image_id", "patient_id", "report"):
            value = str(document.get(column) or "")
            assert len(value) < 3 or value not in shown


@pytest.fixture
def folders(sample, tmp_path):
    first = write_run(tmp_path / "first", ("mediconfusion",), 0.9, 1)
    return first, write_run(tmp_path / "second", ("mediconfusion", "sides"), 0.5, 2)


def test_folders_of_runs_need_no_task(medtasks, folders, tmp_path):
    ran = medtasks("compare", *folders, "--json", tmp_path / "found.json")

    assert (ran.code, ran.err) == (0, "")
    assert "\nmediconfusion\n" in ran.out
    assert "32 of 32 documents answered in both are compared" in ran.out
    assert "SAMPLE DATA (mediconfusion)" in ran.out.splitlines()[-1]
    found = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    assert list(found["tasks"]) == ["mediconfusion"]


def test_a_named_task_is_compared_as_in_the_whole_folders(medtasks, folders, tmp_path):
    medtasks("compare", *folders, "--json", tmp_path / "found.json")

    named = medtasks("compare", "mediconfusion", *folders, "--json", tmp_path / "named.json")

    assert named.code == 0
    found = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    alone = json.loads((tmp_path / "named.json").read_text())
    assert alone["comparisons"] == found["tasks"]["mediconfusion"]["comparisons"]


def test_what_is_neither_a_task_nor_a_folder_is_named(fails, folders, tmp_path):
    fails(
        ["compare", tmp_path / "nowhere", folders[1]],
        "nowhere' is neither a task of ours nor a folder or file;",
    )
    fails(
        ["compare", "mediconfusio", *folders],
        "'mediconfusio' is neither",
        "did you mean 'mediconfusion'?",
    )


@pytest.fixture
def two_models(sample, tmp_path):
    """One folder with the runs of two models."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed, name in enumerate(("good", "bad")):
        write_run(runs / name, ("mediconfusion",), 0.9 - seed / 3, seed)
    return runs


def test_models_and_rules_are_chosen(medtasks, two_models):
    runs = [two_models, two_models]

    ran = medtasks("compare", *runs, "--model", "bad", "--model", "good", "--rule", "robust")

    assert (ran.code, ran.err) == (0, "")
    assert f"A: {two_models}, model: bad\nB: {two_models}, model: good\n" in ran.out
    assert "On mediconfusion (16 pairs), B (good) has set_accuracy" in ran.out
    assert "reference" not in ran.out


def test_a_model_named_once_is_that_of_both_runs(medtasks, two_models):
    runs = [two_models, two_models]
    assert medtasks("compare", *runs, "--model", "good", "--require", "identical").code == 0


def test_models_and_rules_that_are_not_clear_are_refused(fails, two_models):
    runs = [two_models, two_models]
    fails(
        ["compare", *runs],
        "holds runs of several models: 'bad'; 'good'; choose one with --model",
    )
    fails(["compare", *runs, "--model", "bad", "--rule", "robst"], "did you mean 'robust'?")
    fails(
        ["compare", *runs, two_models, *["--model", "bad"] * 2],
        "2 models for 3 runs; give --model once, or once per",
    )


def with_origins(folder, *origins):
    """Record that the first samples of a run are no replies of its own."""
    (path,) = folder.glob("*_samples_*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, origin in zip(lines, origins, strict=False):
        line[ORIGIN] = origin
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def runs_with_copies(folder, copies):
    """Write two runs, of which the second begins with copies of an earlier one; return its samples, too."""
    first, second = (write_run(folder / name, ("mediconfusion",), 0.7, 1) for name in "ab")
    return first, second, with_origins(second, *[COPIED] * copies)


@each_row(
    "command", [["compare", "--equivalence", "0.01"], ["compare", "--require", "not-different"]]
)
@each_row("copies", [32, 1])
@each_row("alone", [True, False])
def test_no_verdict_on_copies_of_an_earlier_run(
    medtasks, sample, tmp_path, command, copies, alone
):
    first, second, path = runs_with_copies(tmp_path, copies)

    ran = medtasks(*command, first, path if alone else second)

    copied = f"B: {copies} of 32 replies are copies of an earlier run"
    words = f"{copied}, so that a verdict would not be on this run; to ask"
    assert ran.code == 1
    assert words in ran.err
    assert "journal=false in --model_args" in ran.err
    assert words in medtasks(*command, "mediconfusion", first, second).err


@each_row("copies", [32, 1])
def test_copies_of_an_earlier_run_are_counted_next_to_the_score(
    medtasks, sample, tmp_path, copies
):
    first, second, _ = runs_with_copies(tmp_path, copies)

    assert (
        f"\n{copies} of 32 replies are copies of an earlier run.\n"
        in medtasks("score", "mediconfusion", second).out
    )
    assert "are copies of" not in medtasks("score", "mediconfusion", first).out


@each_row("copies", [32, 1])
def test_copies_of_an_earlier_run_are_counted_in_a_comparison(
    medtasks, sample, tmp_path, copies
):
    first, second, _ = runs_with_copies(tmp_path, copies)

    ran = medtasks("compare", first, second, "--json", tmp_path / "found.json")

    assert f"\nB: {copies} of 32 replies are copies of an earlier run.\n" in ran.out
    (task,) = json.loads((tmp_path / "found.json").read_text())["tasks"].values()
    assert task["reply_origins"]["A"] == {"samples": 32, "copied": 0, "kept": 0}
    assert task["reply_origins"]["B"] == {"samples": 32, "copied": copies, "kept": 0}


def test_identical_runs_tell_what_only_one_of_them_answered(medtasks, sample, tmp_path):
    first, second = (write_run(tmp_path / name, ("mediconfusion",), 0.7, 1) for name in "ab")
    (samples,) = second.glob("*_samples_*.jsonl")
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:12]))
    ran = medtasks("compare", first, second, "--equivalence", "0.01")
    assert "mediconfusion: identical" in ran.out
    assert (
        "12 of 32 documents answered in both are compared. Left out: 20 answered in A only, 0 in B only"
        in ran.out
    )


def test_replies_of_the_run_that_is_completed_are_its_own(medtasks, sample, tmp_path):
    first, second = (write_run(tmp_path / name, ("mediconfusion",), 0.7, 1) for name in "ab")
    with_origins(first, *[KEPT] * 30)
    ran = medtasks("compare", first, second, "--require", "identical")
    assert (ran.code, ran.err) == (0, "")
    assert (
        "A: 30 of 32 replies are those of the run that this one completes."
        in medtasks("compare", first, second).out
    )


@pytest.fixture
def runs(tmp_path):
    with own_tasks(tmp_path / "own") as right:
        for name, lead, asked in (("a", 1.0, "Question"), ("b", 1.01, "Image")):
            write_replies(tmp_path / name, "letters", right, asked)
            write_replies(tmp_path / name, "likely", losses(right, lead))
        yield tmp_path / "a", tmp_path / "b"


def test_equal_runs_are_identical(medtasks, sample, tmp_path):
    first, second = (write_run(tmp_path / name, ("mediconfusion",), 0.7, 1) for name in "ab")

    ran = medtasks("compare", first, second, "--require", "identical")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:3] == [f"A: {first}, model: a", f"B: {second}, model: b", ""]
    assert "mediconfusion: identical\nEvery reply is the same to the last byte.\n" in ran.out
    assert "Verdict on the scores: identical\nSAMPLE DATA" in ran.out
    assert "Not compared" not in ran.out
    assert "Left out" not in ran.out


def test_few_samples_show_neither_a_difference_nor_its_absence(medtasks, sample, tmp_path):
    first = write_run(tmp_path / "a", ("mediconfusion",), 0.7, 1)
    other = write_run(tmp_path / "c", ("mediconfusion",), 0.7, 2)

    ran = medtasks("compare", "mediconfusion", first, other, "--require", "equivalent")

    assert ran.code == 1
    assert (
        ran.err
        == "medtasks: --require equivalent is not met: the verdict is 'not enough samples to tell'\n"
    )
    assert medtasks("compare", first, other, "--require", "not-different").code == 0


GATED = ("mediconfusion", "mediconfusion_blind")


@pytest.fixture
def good_and_bad(sample, tmp_path):
    good = write_run(tmp_path / "good", GATED, 1.0, 1)
    return good, write_run(tmp_path / "bad", GATED, 0.03, 1)


def test_a_gate_against_worse_scores_lets_better_ones_pass(medtasks, good_and_bad, tmp_path):
    good, bad = good_and_bad
    file = tmp_path / "c.json"
    gate = ["--require", "not-worse", "--margin", "0.02", "--json", file]
    assert medtasks("compare", bad, good, "--require", "not-different").code == 1

    ran = medtasks("compare", bad, good, *gate)

    assert (ran.code, ran.err) == (0, "")
    shown = "Non-inferiority (one-sided tests at 2.5%) shown: in every main score B loses less than the margin to A."
    assert shown in ran.out
    compared = json.loads(file.read_text())
    assert compared["tasks"]["mediconfusion"]["non_inferiority"] == "not worse"


def test_a_gate_against_worse_scores_names_the_worse_one(medtasks, good_and_bad):
    ran = medtasks("compare", *good_and_bad, "--require", "not-worse")

    assert ran.code == 1
    assert ran.err.startswith(
        "medtasks: --require not-worse is not met: mediconfusion: worse: set_accuracy (reference) differs "
        "by −100.0 pts, 95 % interval −100.0 to −"
    )
    assert "blind" not in ran.err


def test_a_gate_against_worse_scores_says_that_samples_are_too_few(
    medtasks, good_and_bad, tmp_path
):
    slip = write_run(tmp_path / "slip", GATED, 0.9, 1)

    ran = medtasks("compare", good_and_bad[0], slip, "--require", "not-worse")

    too_few = "not enough samples to tell ('medtasks plan' computes how many it takes)"
    assert (
        f"--require not-worse is not met: mediconfusion: {too_few}: set_accuracy (reference) differs by −"
        in ran.err
    )


def test_a_task_that_the_second_run_lacks_does_not_pass_the_gate(medtasks, sample, tmp_path):
    more = write_run(tmp_path / "more", ("mediconfusion", "mediconfusion_gd"), 0.7, 1)
    less = write_run(tmp_path / "less", ("mediconfusion",), 0.7, 1)
    for required in ("identical", "not-worse", "not-different"):
        ran = medtasks("compare", more, less, "--require", required)
        assert "Not compared: mediconfusion_gd: has no samples in B\n" in ran.out
        assert (
            ran.err
            == f"medtasks: --require {required} is not met: 1 of their tasks not compared\n"
        )
        assert medtasks("compare", less, more, "--require", required).code == 0


@pytest.fixture
def equivalence(medtasks, runs, tmp_path):
    """Test the runs for equivalence; return what was printed and the JSON."""
    file = tmp_path / "found.json"
    ran = medtasks("compare", *runs, "--json", file, "--equivalence", "0.01")
    assert (ran.code, ran.err) == (0, "")
    return ran.out, json.loads(file.read_text(), parse_constant=pytest.fail)


def test_equivalence_is_told_with_its_margin(equivalence):
    out, found = equivalence

    assert "likely: equivalent within the margin" in out.splitlines()
    assert out.splitlines()[-1] == "Verdict on the scores: equivalent within the margin"
    assert (found["schema_version"], found["verdict"]) == (1, "equivalent within the margin")
    assert (
        found["settings"].items() >= {"margin": 0.01, "alpha": 0.05, "near_tie": 0.25}.items()
    )


def test_differences_of_likelihoods_are_told(equivalence):
    out, found = equivalence

    lines = out.splitlines()
    assert (
        "  difference    median 0.005, q90 0.01, q99 0.01, max 0.01 nats per token; mean with sign +0.005"
        in lines
    )
    assert "  choices       800 of 800 (100.0%) equal" in lines
    task = found["tasks"]["likely"]
    assert (task["lacking"], task["likelihoods"]["options"], task["replies"]) == (
        "",
        1600,
        None,
    )


def test_scores_are_tested_for_equivalence(equivalence):
    out, found = equivalence

    (score,) = found["tasks"]["likely"]["scores"]
    assert (score["metric"], score["main"], score["p_holm"]) == ("accuracy", True, 1)
    assert score["equivalence"]["shown"] is True
    assert rows_of(out)["p, equivalence"] == [f"{score['equivalence']['p']:.4f}"]


def test_a_task_with_different_prompts_is_not_compared(equivalence):
    out, found = equivalence

    (refused,) = (line for line in out.splitlines() if line.startswith("Not compared: "))
    prompts = "the runs gave different prompts to 800 of 800 questions, such as 0 (some"
    assert refused.startswith(f"Not compared: letters: {prompts}")
    assert (list(found["tasks"]), list(found["tasks_not_compared"])) == (
        ["likely"],
        ["letters"],
    )


def test_a_task_that_cannot_be_compared_does_not_pass_a_gate(medtasks, runs):
    assert medtasks("compare", *runs, "--require", "not-different").code == 1


def test_scores_of_all_samples_together_are_compared(medtasks, write):
    tiny_multimedeval.prepare("chestxray14")
    ids = [document["doc_id"] for document in load_documents("multimedeval_chestxray14")]
    runs = [
        write(*({"doc_id": doc_id, "reply": reply} for doc_id in ids), name=f"{reply}.jsonl")
        for reply in ("edema", "no finding")
    ]
    printed = medtasks(
        "compare", "multimedeval_chestxray14", *runs, "--equivalence", "0.01"
    ).out
    assert "exchange of units" in printed
    assert "Not compared" not in printed


def test_a_named_task_has_a_verdict_of_its_own(medtasks, runs, tmp_path):
    ran = medtasks(
        "compare", "likely", *runs, "--require", "equivalent", "--json", tmp_path / "named.json"
    )
    assert ran.code == 0
    named = json.loads((tmp_path / "named.json").read_text())
    assert (named["verdict"], named["settings"]["margin"]) == (
        "equivalent within the margin",
        0.01,
    )
    ran = medtasks(
        "compare", "likely", *runs, "--equivalence", "0.001", "--require", "equivalent"
    )
    assert (ran.code, ran.err) == (
        1,
        "medtasks: --require equivalent is not met: the verdict is 'same answers'\n",
    )


TASK = "mediconfusion"


@pytest.fixture
def commands(sample, tmp_path):
    run, other = (
        write_run(tmp_path / "a", [TASK], 0.6, 1),
        write_run(tmp_path / "b", [TASK], 0.8, 2),
    )
    arguments = {"score": ["score", TASK, run], "compare": ["compare", run, other]}
    return run, arguments | {"report": ["report", run, "--json", tmp_path / "report.json"]}


def damages(run):
    """Return sentences about damage, and the texts of the files that bring it about; None removes one."""
    (samples,), (results,) = run.glob(f"*_samples_{TASK}.jsonl"), run.glob("*_results.json")
    text, newer = samples.read_text(), run / "20990101_000000_000000Z_run.json"
    unknown, second = (
        json.dumps({"doc_id": number, "resps": ["neither"]}) + "\n" for number in (4711, 0)
    )
    copies = {
        run / path.name.replace("20260102", "20260203"): path.read_text()
        for path in run.iterdir()
    }
    return {
        f"Torn lines, left out: 1 of {samples}.": {samples: text[:-20]},
        NO_RESULTS: {results: None},
        NO_SAMPLES: {samples: None},
        f"{results} holds older results of {TASK}, which are left out.": copies,
        f"{samples} line 1: no document '4711' in the prepared dataset": {samples: unknown},
        f"the run manifest {newer} is damaged or of another version of medtasks": {
            newer: '{"schema_version": 99}'
        },
        f"{results} cannot be read and is left out: it is cut off or damaged.": {
            results: results.read_text()[:-20]
        },
        f"Lines that give a question another reply, left out: 1 of {samples}, into which two runs wrote.": {
            samples: text + second
        },
    }


def notices_of_python(run, other):
    """Return the notes and errors of the Python API on a damaged run."""
    try:
        api.compare(run, other)
        return api.read_run(run).notes
    except MedTasksError as error:
        return [str(error)]


def test_all_commands_say_the_same_of_damage(commands, medtasks, warnings, tmp_path):
    run, arguments = commands
    shutil.copytree(run, tmp_path / "whole")
    silent = {}
    for sentence, files in damages(run).items():
        for path, text in files.items():
            path.unlink() if text is None else path.write_text(text)
        texts = {}

        for name, command in arguments.items():
            forget_warnings()  # each command is a process of its own
            warnings.clear()
            ran = medtasks(*command)
            report = (tmp_path / "report.json").read_text() if name == "report" else ""
            texts[name] = "\n".join([ran.out, ran.err, *warnings, report])
        forget_warnings()
        warnings.clear()
        notes = notices_of_python(run, tmp_path / "b")
        texts["python"] = "\n".join([*warnings, *notes])

        words = sentence.rstrip(".")  # the report joins sentences
        silent[sentence] = [name for name, text in texts.items() if words not in text]
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "whole", run)
    assert not any(silent.values()), silent
