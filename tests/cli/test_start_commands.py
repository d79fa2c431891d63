"""``medtasks demo``, ``doctor``, ``tasks``, ``path``, ``models``, ``plan``, ``parse``, and the entry itself."""

import itertools
import json
import math
import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest

import medtasks as package
from medtasks.cli import start
from medtasks.cli.output import say
from medtasks.doctor.check_results import CheckResult, State
from medtasks.errors import MedTasksError
from medtasks.home import own_tasks_folder
from medtasks.running.recipes import recipes
from medtasks.runs.run_manifest import read_manifests
from medtasks.scores.planning import Assumptions, plan
from medtasks.version import __version__

from ..made_up_runs import write_run
from ..tables import each_row


def test_tasks_are_listed_with_their_kind(medtasks):
    lines = medtasks("tasks").out.splitlines()

    paired = [line for line in lines if line.startswith("mediconfusion")]
    endings = [line.split()[0].removeprefix("mediconfusion") for line in paired]
    assert endings == ["", "_all", "_all_ff", "_ff", "_gd", "_ps"]
    kinds = [line.split()[1] for line in paired]
    assert kinds == ["task", "group", "group", "task", "task", "task"]
    assert len({line.index("MediConfusion") for line in paired}) == 1


def test_tasks_are_searched_by_words(medtasks):
    lines = medtasks("tasks", "MediConfusion", "greedy").out.splitlines()
    assert [line.split()[0] for line in lines] == ["mediconfusion_gd"]
    assert [
        line.split()[0] for line in medtasks("tasks", "_ps", "--sanity").out.splitlines()
    ] == ["mediconfusion_ps"]


def test_variants_of_each_task_are_listed(medtasks):
    lines = [line.split() for line in medtasks("tasks", "--sanity").out.splitlines()]

    found = {name: endings for name, *endings in lines}
    sanity = ["_blind", "_blank", "_swapped", "_rotated"]
    stress = ["_told", "_degraded", "_abstain"]
    assert found["mediconfusion"] == [*sanity, *stress, "_sanity", "_stress"]
    assert found["mediconfusion_ps"] == [*sanity[:3], *stress[:2], "_sanity", "_stress"]
    assert not {"mediconfusion_all", "multimedeval_medqa"} & found.keys()


def test_path_names_the_folder_of_the_tasks(medtasks):
    folder = Path(medtasks("path").out.removesuffix("\n"))
    assert (folder / "mediconfusion" / "mediconfusion.yaml").is_file()


def test_the_version_is_that_of_the_package(medtasks):
    assert medtasks("--version").out == f"medtasks {package.__version__}\n"


def test_wrong_usage_is_told_with_the_usage(medtasks):
    for arguments in (["tasks", "--no-such"], ["no-such"], ["score"], ["data", "prepare"]):
        ran = medtasks(*arguments)
        assert (ran.code, ran.out, "Usage: medtasks" in ran.err, "Traceback" in ran.err) == (
            2,
            "",
            True,
            False,
        )


def test_help_shows_no_python_types(medtasks):
    for command in (
        ["doctor"],
        ["compare"],
        ["merge"],
        ["report"],
        ["data", "prepare"],
        ["models"],
        [],
    ):
        shown = medtasks(*command, "--help").out
        assert "Usage: medtasks" in shown
        assert set("<>") & set(shown) == set(), shown


def test_help_names_values(medtasks):
    assert re.search(r"--task +TEXT.* +Only for", medtasks("doctor", "--help").out)
    assert re.search(r"--verify +Also read", medtasks("doctor", "--help").out)
    assert re.search(r"--json +PATH +Also write", medtasks("doctor", "--help").out)


@pytest.mark.parametrize("command", [["run"], ["compare"], ["data", "select"]])
def test_help_fills_the_width_of_the_terminal(medtasks, command):
    shown = medtasks(*command, "--help").out

    description = shown.partition("Usage")[2].partition("╭")[0]
    for paragraph in re.split(r"\n *\n", description):
        lines = [line.strip() for line in paragraph.splitlines()]
        for line, following in itertools.pairwise(lines):
            assert len(f"{line} {following.split()[0]}") > 78, line


SENTENCES = ["see [bold]this[/bold] and [/]", "C:\\[x]", "a [link=x]y[/link] \\[z]"]
LOCKED = PermissionError(13, "Permission denied", "/locked")


@each_row(
    "error, sentence",
    [
        *((MedTasksError(sentence), sentence) for sentence in SENTENCES),
        (LOCKED, "/locked: Permission denied"),
    ],
)
def test_sentences_are_printed_as_they_are(fails, monkeypatch, capsys, error, sentence):
    def stop():
        raise error

    monkeypatch.setattr(start, "tasks_folder", stop)
    assert fails(["path"]).err == f"medtasks: {sentence}\n"
    say(f"{sentence}\x1b[2J")
    assert capsys.readouterr().out == f"{sentence}?[2J\n"


def test_bugs_are_not_hidden(medtasks, monkeypatch):
    monkeypatch.setattr(start, "tasks_folder", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        medtasks("path")


ROW = {
    "alias": "mediconfusion [SAMPLE DATA]",
    "set_accuracy,reference": 0.25,
    "set_accuracy_stderr,reference": 0.125,
}
ROW |= {
    "set_accuracy,robust": 0.875,
    "invalid_rate,reference": 1,
    "invalid_rate,robust": float("nan"),
}
RESULTS = {"results": {"mediconfusion": ROW}}


@pytest.fixture
def harness(monkeypatch):
    """Play the harness: write these results, or none, and return this exit code."""
    seen = {}

    def run(results, code=0, report_code=0):
        def play(command, env, stdout=None, **options):
            if "report" in command:
                assert env["MEDTASKS_HOME"] == seen["home"]
                seen.update(reported=command[command.index("report") + 1])
                Path(command[command.index("--html") + 1]).write_text("page")
                return subprocess.CompletedProcess(
                    command, report_code, stderr="medtasks: no page\n"
                )
            seen.update(command=command, home=env["MEDTASKS_HOME"])
            stdout.write("\n".join(f"line {number}" for number in range(40)))
            stdout.flush()
            if results is not None:
                folder = Path(command[command.index("--output_path") + 1])
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "20260101_results.json").write_text(json.dumps(results))
            return subprocess.CompletedProcess(command, code)

        monkeypatch.setattr(start.subprocess, "run", play)
        return seen

    return run


def test_demo_shows_a_table_of_scores(medtasks, harness, tmp_path):
    harness(RESULTS)

    ran = medtasks("demo", "--output", tmp_path / "out")

    assert ran.code == 0, ran.err
    table = [
        line.split()
        for line in ran.out.splitlines()
        if line.startswith(("   ", "mediconfusion "))
    ]
    assert table == [
        [
            "set_accuracy,reference",
            "set_accuracy,robust",
            "invalid_rate,reference",
            "invalid_rate,robust",
        ],
        ["mediconfusion", "25.0%", "87.5%", "100.0%", "n/a"],
    ]


def test_demo_prepares_the_sample_in_a_home_of_its_own(medtasks, harness, tmp_path):
    seen = harness(RESULTS)

    ran = medtasks("demo", "--output", tmp_path / "out")

    assert seen["home"] == str(tmp_path / "out" / "home")
    assert (tmp_path / "out/home/datasets/mediconfusion/manifest.json").is_file()
    assert (
        f"MEDTASKS_HOME={tmp_path / 'out/home'} lmms_eval --model medtasks_tiny --model_args wording=made_up "
        "--device cpu --tasks mediconfusion," in ran.out
    )


def test_demo_names_results_and_report(medtasks, harness, tmp_path):
    seen = harness(RESULTS)

    ran = medtasks("demo", "--output", tmp_path / "out")

    assert str(tmp_path / "out/results/20260101_results.json") in ran.out
    assert seen["reported"] == str(tmp_path / "out/results")
    assert f"Report:  {tmp_path / 'out/results/report.html'} (open it in a browser)" in ran.out


def test_demo_writes_below_the_working_folder(medtasks, harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    harness(RESULTS)
    assert (
        f"Report:  {tmp_path / 'medtasks-demo/results/report.html'} (open"
        in medtasks("demo").out
    )
    assert [path.name for path in tmp_path.iterdir()] == ["medtasks-demo"]


def test_a_harness_that_fails_is_shown_with_the_end_of_its_log(medtasks, harness, tmp_path):
    for number, (results, code) in enumerate([(None, 0), (RESULTS, 1)]):
        harness(results, code)
        ran = medtasks("demo", "--output", tmp_path / f"{number}")
        assert ran.code == 1
        assert f"the harness produced no results (exit code {code})" in ran.err
        assert "line 39" in ran.err
        assert "line 24" not in ran.err


def test_a_report_that_fails_is_one_sentence(fails, harness, tmp_path):
    harness(RESULTS, report_code=1)
    fails(
        ["demo", "--output", tmp_path / "out"],
        "the report could not be written: medtasks: no page",
    )


FINE = CheckResult("harness", "version", State.OK, "lmms-eval [0.7.3] fits")
NOTE = CheckResult("harness", "command", State.NOTE, "it is elsewhere", "look there")
WARNING = CheckResult("machine", "disk", State.WARNING, "4.0 GB are free", "make room")
PROBLEM = CheckResult(
    "datasets",
    "mediconfusion",
    State.PROBLEM,
    "not prepared",
    "medtasks data prepare mediconfusion",
)


@pytest.fixture
def doctor(medtasks, monkeypatch):
    """Run the command with these findings; returns what it did and what it asked for."""

    def run(*arguments, findings):
        asked = []

        def examine(names, *, verify, model, model_args):
            asked.append((list(names), verify, *filter(None, [model, model_args])))
            return list(findings)

        monkeypatch.setattr("medtasks.doctor.examining.examine", examine)
        return medtasks("doctor", *arguments), asked

    return run


def test_findings_of_doctor_and_its_exit_code(doctor):
    ran, asked = doctor(findings=[FINE, NOTE, PROBLEM])
    assert ran.out.splitlines()[:-1] == [
        "harness",
        "  ok       version: lmms-eval [0.7.3] fits",
        "  note     command: it is elsewhere",
        "           fix: look there",
        "datasets",
        "  problem  mediconfusion: not prepared",
        "           fix: medtasks data prepare mediconfusion",
    ]
    assert ran.out.splitlines()[-1] == "1 problem, 0 warnings, 1 note, 1 ok."
    assert (ran.code, asked) == (1, [([], False)])
    ran, _ = doctor(findings=[FINE, NOTE, WARNING, WARNING])
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "0 problems, 2 warnings, 1 note, 1 ok.")


def test_doctor_examines_the_model_that_is_named(doctor):
    for option in ("--model-args", "--model_args"):
        _, asked = doctor(option, "base_url=http://127.0.0.1:9/v1", findings=[FINE])
        assert asked == [([], False, "base_url=http://127.0.0.1:9/v1")]
    assert doctor("--model", "llava_hf", findings=[FINE])[1] == [([], False, "llava_hf")]


def test_findings_of_doctor_are_written_as_json(doctor, tmp_path):
    path = tmp_path / "doctor.json"
    options = ("--json", path, "--task", "a", "--task", "b", "--verify")

    ran, asked = doctor(*options, findings=[FINE, PROBLEM])

    assert (ran.code, asked) == (1, [(["a", "b"], True)])
    written = json.loads(path.read_text())
    assert written.pop("findings") == [
        {**asdict(finding), "state": str(finding.state)} for finding in (FINE, PROBLEM)
    ]
    assert written.pop("counts") == {"ok": 1, "note": 0, "warning": 0, "problem": 1}
    assert written == {"medtasks": __version__, "tasks": ["a", "b"], "verified": True}


def test_recipes_are_listed_with_licence_and_scores(medtasks):
    ran = medtasks("models")

    rows = {line.split("  ")[0]: line for line in ran.out.splitlines()}
    assert set(rows) - {"name"} == set(recipes())
    assert "Health AI Developer Foundations" in rows["medgemma-4b"]
    assert (
        rows["hulu-med-7b"].split("  ")[-2].strip() == "none"
        or "  none  " in rows["hulu-med-7b"]
    )
    assert rows["lingshu-7b"].split()[1:4] == ["7B", "MIT", "no"]


def test_a_recipe_shows_its_sources_and_traps(medtasks):
    ran = medtasks("models", "lingshu-7b")

    flat = " ".join(ran.out.split())
    assert ran.code == 0
    assert "licence: MIT source: model card of lingshu-medical-mllm/Lingshu-7B" in flat
    assert ran.out.count("    source: ") >= 10
    assert "Known traps" in ran.out
    assert "whether the paper's table used reasoning" in flat


def test_a_recipe_shows_published_scores(medtasks):
    flat = " ".join(medtasks("models", "lingshu-7b").out.split())
    assert (
        "medevalkit_pmc_vqa accuracy: 56.3, as Lingshu-7B in Lingshu, arXiv 2506.07044" in flat
    )


def test_a_recipe_shows_its_commands(medtasks):
    ran = medtasks("models", "lingshu-7b")

    assert (
        "lmms_eval --model hf_vlm --model_args 'pretrained=lingshu-medical-mllm/Lingshu-7B,"
        in ran.out
    )
    assert "vllm serve lingshu-medical-mllm/Lingshu-7B --revision b98aecd" in ran.out


def test_recipes_can_be_shown(medtasks):
    for name in list(recipes())[::5]:
        assert medtasks("models", name).code == 0


def test_a_recipe_says_where_its_model_cannot_run(medtasks):
    fleming = medtasks("models", "fleming-vl-8b").out
    hulu = medtasks("models", "hulu-med-7b").out
    assert "not in this process: transformers 5.23 does not know" in fleming
    assert "not on a server: vLLM 0.32 has no class for it" in hulu


def test_a_misspelt_recipe_is_refused(medtasks):
    ran = medtasks("models", "lingshu7b")
    assert (ran.code, "did you mean 'lingshu-7b'" in ran.err.replace("\n", " ")) == (1, True)


@pytest.fixture
def recipe_run(medtasks, tmp_path):
    """Run a recipe with arguments of the user; return the arguments of the harness."""
    own_tasks_folder().mkdir()
    (own_tasks_folder() / "one.yaml").write_text("task: one\ngeneration_kwargs: {until: []}\n")
    code = "import json, sys; json.dump(sys.argv, open(sys.argv[1], 'w'))"
    launcher = shlex.join([sys.executable, "-c", code, str(tmp_path / "told.json")])
    launched = [
        f"--launcher={launcher}",
        "--tasks",
        "one",
        "--output_path",
        str(tmp_path / "out"),
    ]
    medtasks(
        "run",
        *launched,
        "--recipe",
        "qoq-med-7b",
        "--model_args",
        "dtype=float16,hf_token=planted",
    )
    return json.loads((tmp_path / "told.json").read_text())


def test_a_run_passes_on_what_the_recipe_stands_for(recipe_run):
    last = max(place for place, word in enumerate(recipe_run) if word == "--model_args")
    assert recipe_run[last + 1].startswith(
        "pretrained=ddvd233/QoQ-Med-VL-7B,dtype=float16,revision=aedfc4"
    )
    assert recipe_run[recipe_run.index("--model") + 1] == "hf_vlm"


def test_a_run_records_its_recipe_without_secrets(recipe_run, tmp_path):
    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.recipe.name == "qoq-med-7b"
    assert manifest.recipe.given == {"dtype": "float16", "hf_token": "***"}
    assert manifest.command[-4:-2] == ("--recipe", "qoq-med-7b")
    assert "planted" not in manifest.path.read_text()


@pytest.fixture
def needed(medtasks, sample, tmp_path):
    """Plan with further options; return what was printed and the JSON."""

    def plan(*further):
        file = tmp_path / "plan.json"
        options = ("--against", "0.25", "--difference", "0.3", "--json", file)
        ran = medtasks("plan", "mediconfusion", *options, *further)
        assert ran.code == 0
        assert ran.err == ""
        return ran.out, json.loads(file.read_text(), parse_constant=pytest.fail)

    return plan


def test_a_plan_from_the_data_alone_states_its_assumptions(needed):
    out, found = needed()

    known = found["assumptions"]
    assert (found["task"], known["metric"], known["samples"]) == (
        "mediconfusion",
        "set_accuracy",
        16,
    )  # pairs
    assert (known["score"], known["discordance"], found["margin"]) == (0.25, None, None)
    assert f"To show a difference of 30.0%: {found['needed']} samples." in out
    assert (
        "Samples on which the two models differ: 52.5% (if both models answer independently"
        in out
    )
    assert "SAMPLE DATA" in out


def test_more_tests_and_more_power_need_more_samples(needed):
    of_one = needed()[1]["needed"]
    of_four = needed("--tests", "4")[1]["needed"]
    assert of_one < of_four < needed("--tests", "4", "--power", "0.9")[1]["needed"]


@pytest.fixture
def plan_of_runs(medtasks, sample, tmp_path):
    """Plan with two runs; return what was printed and the JSON."""
    first = write_run(tmp_path / "a", ("mediconfusion",), 0.9, 1)
    second = write_run(tmp_path / "b", ("mediconfusion",), 0.5, 1)
    file = tmp_path / "plan.json"
    options = ("--run", first, "--run", second, "--margin", "0.2", "--json", file)
    ran = medtasks("plan", "mediconfusion", *options)
    assert (ran.code, ran.err) == (0, "")
    return ran.out, json.loads(file.read_text())


def test_runs_give_score_and_discordance_of_a_plan(plan_of_runs, medtasks, tmp_path):
    out, plan = plan_of_runs
    runs = (tmp_path / "a", tmp_path / "b")

    medtasks("compare", "mediconfusion", *runs, "--json", tmp_path / "compared.json")

    known = plan["assumptions"]
    assert (known["score_source"], "(of the two runs)" in out) == ("of the first run", True)
    comparisons = json.loads((tmp_path / "compared.json").read_text())["comparisons"]
    test = next(
        one
        for one in comparisons
        if (one["rule"], one["metric"]) == ("reference", "set_accuracy")
    )
    assert (known["score"], known["samples"]) == (test["first"], test["samples"])
    assert abs(test["difference"]) <= known["discordance"] <= 1


def test_a_plan_with_a_margin_is_of_non_inferiority(plan_of_runs):
    out, plan = plan_of_runs

    assert plan["reached_for_margin"] is not None
    assert "Level: 0.05, two-sided (non-inferiority: 0.025, one-sided); power: 80.0%." in out
    assert (
        "To show that the other model is worse by less than 20.0%, if it differs by 0.0%: "
        in out
    )


def test_numbers_of_samples_do_not_depend_on_rounding_errors():
    def planned(samples, design):
        assumed = Assumptions("accuracy", samples, samples, 0.5, "", None, "", design, "")
        return plan(assumed, 0.1, None, 0.8)

    independent = planned(1000, 1.0)
    assert (
        planned(1070, 1.07).reached == independent.reached
    )  # 1,070 / 1.07 is 999.9999999999999
    for percent in range(100, 120):
        needed = math.ceil(Fraction(independent.needed * percent, 100))
        assert planned(1000, percent / 100).needed == needed, percent


def test_a_plan_takes_up_to_two_runs(fails, sample):
    fails(
        ["plan", "mediconfusion", *["--run", "a"] * 3],
        "a plan takes up to two earlier runs, but got 3",
    )


@each_row(
    "options, message",
    [
        (("--against", "0.9", "--difference", "0.2"), "cannot differ by 0.2"),
        (("--against", "1.5"), "--against is between 0 and 1"),
        (("--power", "1"), "--power and --margin"),
        (("--tests", "0"), "--tests at least 1"),
    ],
)
def test_numbers_of_a_plan_that_are_out_of_range_are_refused(fails, sample, options, message):
    fails(["plan", "mediconfusion", *options], message)


def test_a_plan_for_likelihoods_has_the_pairs_of_the_texts(medtasks, sample):
    ran = medtasks("plan", "mediconfusion_gd", "--against", "0.25")
    assert ran.out.startswith(
        "mediconfusion_gd, set_accuracy: 16 samples prepared, in 16 clusters or pairs."
    )


def test_tasks_without_shares_are_not_planned(medtasks, sample):
    assert medtasks("plan", "iu_xray_report", "--difference", "0.1").code == 1
    assert "a judge reads replies" in medtasks("plan", "mediconfusion_ff").err


OPTIONS = ["A smooth wall", "A round bulge"]


def lines(*items):
    return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)


def answers(ran):
    assert (ran.code, ran.err) == (0, "")
    return [tuple(json.loads(line).values()) for line in ran.out.splitlines()]


def test_rules_read_the_same_replies_differently(medtasks):
    bulge = {"reply": "A round bulge", "options": OPTIONS}
    stdin = lines({"reply": "The answer is A."}, "", {"reply": "(b)"}, bulge, {"reply": None})
    reference = answers(medtasks("parse", "mediconfusion_reference", stdin=stdin))
    assert [value for value, _ in reference] == ["A", None, "A", None]
    robust = answers(medtasks("parse", "robust_choice", stdin=stdin))
    assert robust == [("A", "ok"), ("B", "ok"), ("B", "ok"), (None, "empty")]


def test_no_replies_have_no_answers(medtasks):
    assert answers(medtasks("parse", "robust_choice", stdin="\n\n")) == []


def test_an_unknown_rule_is_refused(fails):
    unknown = fails(
        ["parse", "robust_choise"],
        "unknown rule 'robust_choise'; did you mean 'robust_choice'?",
    )
    assert unknown.out == ""


def test_open_answers_are_read_from_standard_input(medtasks):
    read = medtasks(
        "parse",
        "robust_vqa",
        stdin=lines({"reply": "Ja.", "question": "Liegt ein Erguss vor?", "answer": "ja"}),
    )

    assert {"value": "yes", "correct": True}.items() <= json.loads(read.out).items()


def test_labels_are_read_from_standard_input(medtasks):
    labels = {"reply": "Effusion, no nodule.", "options": ["Nodule", "Effusion"]}
    read = medtasks("parse", "robust_labels", stdin=lines(labels))
    assert json.loads(read.out)["value"] == [0, 1]


BESIDE = {"reply": "O tumor fica no lado A", "options": OPTIONS}


def test_replies_are_read_in_a_language(medtasks):
    german = medtasks(
        "parse", "medheval_strict", "--language", "de", stdin=lines({"reply": "Nein"})
    )
    assert json.loads(german.out)["value"] == "B"
    for language, value in (([], None), (["--language", "pt"], "A")):
        read = medtasks("parse", "robust_choice", *language, stdin=lines(BESIDE))
        assert json.loads(read.out)["value"] == value


def test_an_unknown_language_is_refused(fails):
    unknown = "unknown language 'german'. Known: ar, bn,"
    fails(["parse", "robust_choice", "--language", "german"], unknown, stdin=lines(BESIDE))


def test_a_rule_says_what_it_needs_besides_the_reply(fails):
    needs = "the rule 'robust_yes_no_maybe' needs 'options', in their order, such as"
    fails(["parse", "robust_yes_no_maybe"], needs, stdin=lines({"reply": "Yes"}))
    fails(
        ["parse", "robust_vqa"],
        "the rule 'robust_vqa' compares with a target; add 'answer'",
        stdin=lines({"reply": "Yes"}),
    )
    fails(["parse", "untied"], "reads no replies", stdin=lines({"reply": "Yes"}))


def test_standard_input_that_cannot_be_read(fails):
    place = "standard input line 2"
    ran = fails(
        ["parse", "robust_choice"],
        place,
        "'reply' is missing",
        stdin=lines({"reply": "B"}, "{}"),
    )
    assert ran.out.count("\n") == 1  # what came before is answered
    fails(
        ["parse", "robust_choice"],
        place,
        "is not an object like",
        stdin=lines({"reply": "B"}, "nonsense"),
    )
    fails(
        ["parse", "robust_choice"],
        "standard input is not UTF-8 text",
        stdin=b'{"reply": "\xff"}\n',
    )
