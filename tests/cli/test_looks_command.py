"""A comparison that may stop early, planned and run on the sample; a model of known skill stands in for the harness."""

import json
from pathlib import Path

import pytest

from medtasks.cli import run_command
from medtasks.data.dataset_lookup import provenance
from medtasks.data.document_store import load_documents
from medtasks.data.looks import LOOK_VARIABLE, Look
from medtasks.data.shards import clusters_of
from medtasks.extract.failure import failed_reply
from medtasks.lmms.earlier_replies import KEPT_VARIABLE
from medtasks.running.harness_run import HarnessOutcome
from medtasks.runs.run import open_run
from medtasks.runs.run_manifest import RunManifest, read_manifests
from medtasks.runs.run_notes import run_notes

from ..made_up_runs import write_run
from ..tables import each_row

TASK = "mediconfusion"
OTHER_LETTER = {"A": "B", "B": "A"}


class Model:
    """A model that is right or wrong throughout, and fails on some rows; it remembers which it was asked."""

    def __init__(self):
        self.is_right = True
        self.fails_on = set()
        self.asked = []

    def run_tasks(self, names, arguments, output, start, watch, variables):
        documents = load_documents(TASK)
        rows = Look.parse(variables[LOOK_VARIABLE]).rows(clusters_of(documents))
        kept = {}
        if KEPT_VARIABLE in variables:
            manifest = RunManifest.read(Path(variables[KEPT_VARIABLE]))
            lines = (
                (manifest.path.parent / manifest.tasks[TASK].samples).read_text().splitlines()
            )
            kept = {line["doc_id"]: line for line in map(json.loads, lines)}
        self.asked.append([row for row in rows if row not in kept])
        lines = []
        for row in rows:
            letter = documents[row]["answer"]
            reply = letter if self.is_right else OTHER_LETTER[letter]
            if row in self.fails_on:
                reply = failed_reply("out of memory")
            lines.append(
                kept.get(row, {"doc_id": row, "resps": [reply], "filtered_resps": [reply]})
            )
        stamp = f"20260102_03040{len(self.asked)}"
        output.mkdir(exist_ok=True)
        samples = output / f"{stamp}_samples_{TASK}.jsonl"
        samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
        failed = len(self.fails_on & set(rows))
        row = {
            "set_accuracy,reference": 0.5,
            "scored_samples,reference": len(rows) - failed,
            "failed_samples,reference": failed,
        }
        content = {
            "results": {TASK: row},
            "configs": {TASK: {"task": TASK, "metadata": {"data": provenance(TASK)}}},
            "n-samples": {TASK: {"original": len(documents), "effective": len(rows)}},
            "config": {"model": "dummy", "model_args": ""},
        }
        path = output / f"{stamp}_results.json"
        path.write_text(json.dumps(content))
        outcome = HarnessOutcome(
            results=[path], done=[TASK], files={TASK: path}, rows={TASK: row}
        )
        watch(outcome)
        return outcome


@pytest.fixture
def model(monkeypatch):
    model = Model()
    monkeypatch.setattr(run_command, "run_tasks", model.run_tasks)
    return model


@pytest.fixture
def call(medtasks, sample, tmp_path, monkeypatch, model):
    """A plan, another run that is right throughout, and the arguments of a run that is compared with it."""
    monkeypatch.chdir(tmp_path)
    medtasks("plan", TASK, "--difference", "0.5", "--looks", "4")
    write_run(tmp_path / "other", [TASK], 1.0, 0)
    return [
        *("run", "--looks", "looks.json", "--against", "other", "--tasks", TASK),
        *("--output_path", "out", "--model", "dummy"),
    ]


def records():
    return [manifest.look for manifest in read_manifests(Path("out"))]


def test_a_plan_is_written_and_printed(medtasks, call):
    ran = medtasks(
        "plan", TASK, "--difference", "0.5", "--looks", "4", "--seed", "3", "--out", "p"
    )

    plan = json.loads(Path("p").read_text())
    assert (plan["task"], plan["metric"], plan["rule"]) == (TASK, "set_accuracy", "reference")
    assert (plan["seed"], plan["questions"], plan["looks"][-1]) == (3, 32, 32)
    assert plan["fingerprint"] == provenance(TASK)["fingerprint"]
    assert len(plan["looks"]) == len(plan["levels"]) == 4
    assert list(plan["expected_share"]) == [
        "0",
        "0.5",
    ]  # twice as much is all there is, without a spread
    assert plan["expected_share"]["0.5"] < 0.8 < 0.98 < plan["expected_share"]["0"]
    for words in (
        "32 of 32 questions",
        f"p <= {plan['levels'][1]:.5f}",
        "Assumed: metric, rule",
    ):
        assert words in ran.out


def test_no_more_questions_than_the_difference_takes(medtasks, call):
    medtasks(
        "plan",
        TASK,
        "--against",
        "0.5",
        "--difference",
        "0.48",
        "--looks",
        "2",
        "--power",
        "0.5",
    )
    plan = json.loads(Path("looks.json").read_text())
    assert plan["looks"][-1] < plan["questions"] == 32


@pytest.fixture
def stopped(medtasks, call, model):
    """A run that is wrong throughout, so that it stops early; returns what was printed."""
    model.is_right = False
    ran = medtasks(*call)
    assert ran.code == 0, ran.err
    return ran.out


def test_a_planted_difference_stops_early(stopped, model):
    plan = json.loads(Path("looks.json").read_text())
    assert [record.shows_difference for record in records()] == [False, False, True]
    parts = [set(part) for part in model.asked]
    assert [len(part) for part in parts] == [
        asked - before
        for asked, before in zip(plan["looks"][:3], [0, *plan["looks"]], strict=False)
    ]
    assert not parts[0] & parts[1]


def test_a_run_that_stopped_early_is_called_partial(stopped):
    sentence = str(records()[-1])
    assert sentence.startswith(
        "PARTIAL, stopped at look 3 of 4: 75% of the questions; a score of this part, and optimistic after an early "
        "stop. set_accuracy under reference: 0.0%, against 100.0% of other on 12 samples; difference -100.0 pts"
    )
    assert sentence in stopped


def test_a_look_is_tested_at_its_own_level(stopped):
    plan = json.loads(Path("looks.json").read_text())
    result = records()[-1].result
    assert result["p"] <= records()[-1].level == plan["levels"][2]
    assert result["p"] < records()[-1].stagewise_p < 0.05
    assert -1 <= result["low"] < result["high"] < 0


def test_the_repeated_interval_is_the_wider_one(stopped, medtasks):
    """It has the confidence of the look's level."""
    medtasks("compare", TASK, "other", "out", "--json", "plain.json")

    plain = json.loads(Path("plain.json").read_text())["comparisons"][0]
    assert records()[-1].result["high"] > plain["high"]


def test_a_run_that_stopped_early_is_not_asked_again(stopped, medtasks, call, model):
    again = medtasks(*call)

    assert len(model.asked) == 3
    assert str(records()[-1]) in again.out
    assert len(records()) == 3


def test_a_run_that_stopped_early_is_noted_with_its_primary_outcome(stopped):
    notes = run_notes(open_run(Path("out")))
    assert str(records()[-1]) in notes
    assert any(
        note.startswith("Primary outcome, stated before the run: set_acc") for note in notes
    )


def test_a_comparison_does_not_allow_for_the_looks(stopped, medtasks):
    compared = " ".join(medtasks("compare", TASK, "out", "other").out.split())
    assert f"Note: A: {records()[-1]} The tests here do not allow for the looks." in compared


def test_looks_do_not_go_on_with_other_settings(stopped, medtasks, call, model):
    """They would be another comparison on answers that were seen."""
    changed = medtasks(*call, "--gen_kwargs", "temperature=1")

    assert "looks in out had another model, settings or versions" in changed.err
    assert len(model.asked) == 3


def test_equal_models_are_asked_everything(medtasks, call, model):
    ran = medtasks(*call)

    assert sorted(row for part in model.asked for row in part) == list(range(32))
    last = records()[-1]
    assert str(last).startswith("ended at look 4 of 4: 100% of the questions. set_accuracy")
    assert (last.result["p"], last.stagewise_p, last.shows_difference) == (1.0, 1.0, False)
    assert str(last) in ran.out
    assert ran.out.count("PARTIAL, going on at look") == 3


def test_an_interrupted_run_goes_on(medtasks, call, model, monkeypatch):
    model.is_right = False
    whole = model.run_tasks

    def interrupted(*arguments):
        if len(model.asked) == 1:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(run_command, "run_tasks", interrupted)
    medtasks(*call)
    first = str(records()[0])
    monkeypatch.setattr(run_command, "run_tasks", whole)
    medtasks(*call)

    finished = [record for record in records() if record.result]
    assert [record.index for record in finished] == [1, 2, 3]
    assert str(finished[0]) == first
    assert len({row for part in model.asked for row in part}) == sum(map(len, model.asked))


def test_failed_questions_are_counted(medtasks, call, model):
    plan = json.loads(Path("looks.json").read_text())
    first = Look(1, 4, 0, plan["looks"][0]).rows(clusters_of(load_documents(TASK)))
    model.fails_on = {first[0]}
    assert "failed" in medtasks(*call).err  # more than 1 %: nothing is compared
    assert records()[0].result is None
    medtasks(*call, "--max-failed", "1")
    assert records()[-1].unpaired == 1
    assert "1 questions failed in a run and are not compared" in str(records()[-1])


@pytest.fixture
def unfit(call):
    """A run of a part of the task, and a plan for other data."""
    samples = write_run(Path("part"), [TASK], 1.0, 0) / f"20260102_030405_samples_{TASK}.jsonl"
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:24]))
    stale = json.loads(Path("looks.json").read_text()) | {"fingerprint": "0" * 12}
    Path("stale.json").write_text(json.dumps(stale))


@each_row(
    ("changes", "sentence"),
    [
        ({"--looks": "other/20260102_030405_results.json"}, "is not from 'medtasks plan TASK"),
        ({"--looks": "none.json"}, "is not from 'medtasks plan TASK"),
        ({"--against": "part"}, "answered 24 of 32 samples of 'mediconfusion', and --against"),
        ({"--against": "none"}, "cannot read replies from none"),
        ({"--against": None}, "--looks PLAN and --against OTHER_RUN go together"),
        ({"--looks": None}, "--looks PLAN and --against OTHER_RUN go together"),
        ({"--tasks": "mediconfusion_gd"}, "looks.json is a plan of mediconfusion"),
        ({"--tasks": "mediconfusion,mediconfusion_gd"}, "give --tasks mediconfusion alone"),
        ({"--limit": "4"}, "--looks chooses the rows of every task itself; leave out --limit"),
        ({"--shard": "1/2"}, "--looks and --shard do not go together"),
        ({"--primary": "mediconfusion:confusion"}, "--looks and --primary do not go together"),
        ({"--repeats": "2"}, "--looks and --repeats do not go together"),
        (
            {"--looks": "stale.json"},
            "the looks are planned for version 7 of 'mediconfusion' on data",
        ),
    ],
)
def test_what_is_refused(fails, call, unfit, model, changes, sentence):
    options = dict(zip(call[1::2], call[2::2], strict=True)) | changes
    words = [word for option, value in options.items() if value for word in (option, value)]
    fails(["run", *words], sentence)
    assert model.asked == []


@each_row(
    ("options", "sentence"),
    [
        (["--looks", "4"], "takes a --difference"),
        (["--looks", "1", "--difference", "0.5"], "--looks is between 2 and 10"),
        (["--looks", "11", "--difference", "0.5"], "--looks is between 2 and 10"),
        (["--looks", "4", "--difference", "0.5", "--seed", "-1"], "not negative"),
        (
            ["--looks", "4", "--difference", "0.5", "--rule", "robustt"],
            "unknown rule 'robustt'",
        ),
    ],
)
def test_what_cannot_be_planned(fails, sample, tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    fails(["plan", TASK, *options], sentence)
    assert not Path("looks.json").exists()


def test_a_metric_of_all_samples_together_is_not_planned(fails, multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    for task in ("multimedeval_mimic_cxr_report", "multimedeval_chestxray14"):
        fails(["plan", task, "--difference", "0.1", "--looks", "4"], f"of '{task}' is no mean")
