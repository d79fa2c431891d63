"""``medtasks check``: a printed number against replies; what explains another one; exit codes."""

import json
from decimal import Decimal

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import RepliesError
from medtasks.scores.printed_check import is_rounded, printed_number

from .. import tiny_multimedeval
from ..tables import each_row
from ..tiny_medevalkit import put_source

PMC = "medevalkit_pmc_vqa"
# Of the answers A to D, A, B: a letter, a letter, the most similar option, another letter, and A for no text.
REPLIES = ("A", "B", "blu", "A", "")


@pytest.fixture
def pmc(tmp_path, monkeypatch, write):
    """Replies to five of six questions."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare(PMC, Options(put_source(PMC, tmp_path), allow_incomplete=True))
    documents = load_documents(PMC)
    return write(
        *(
            {"doc_id": row["doc_id"], "reply": text}
            for row, text in zip(documents, REPLIES, strict=False)
        )
    )


def test_a_consistent_number_is_told_in_one_sentence(medtasks, pmc):
    ran = medtasks("check", PMC, pmc, "--printed", "80.0 %")
    assert (ran.code, ran.err) == (0, "")
    sentence, verdict, *_ = ran.out.splitlines()
    assert sentence.startswith(
        "Printed accuracy 80.0%; the published rule (medevalkit_choice v1) gives 80.0% ["
    )
    parts = sentence.split("; ")
    assert parts[1].endswith("] on 5 of 6 samples (1 without a reply)")
    assert parts[2] == "40.0 pts of it are replies read by similarity"
    assert parts[3].startswith("a careful reading (robust_kit_choice v")
    assert ") gives 40.0% [" in parts[3]
    assert verdict == "Consistent: rounded, it is 80.0%."


@each_row(
    "printed, gap, explained",
    [
        (
            "40",
            "40.0 pts below it",
            ["under the rule 'robust' (", "read by similarity counted as wrong: 40.0%"],
        ),
        (
            "66.7",
            "13.3 pts below it",
            ["readable answer only: 66.7%", "without a reply counted as wrong: 66.7%"],
        ),
        ("66.67", "13.33 pts below it", ["without a reply counted as wrong: 66.67%"]),
        ("79.96", "0.04 pts below it", []),
        (
            "0.8",
            "79.2 pts below it",
            ["the same number as a fraction, and --printed is in percent: 80.0%"],
        ),
    ],
)
def test_what_explains_another_number(medtasks, pmc, printed, gap, explained):
    ran = medtasks("check", PMC, pmc, "--printed", printed)
    assert (ran.code, ran.err) == (1, "")
    assert f"Not consistent: {printed}% is {gap}." in ran.out
    explanations = ran.out.partition(f"{gap}.\n")[2]
    assert [part for part in explained if part not in explanations] == []


@each_row(
    "text, value",
    [("72.50 %", "72.50"), (".45", "0.45"), ("−3", "-3"), ("+0", "0"), ("72", "72")],
)
def test_numbers_as_printed(text, value):
    number = printed_number(text)
    assert (number, number.as_tuple().exponent) == (
        Decimal(value),
        Decimal(value).as_tuple().exponent,
    )


@each_row("text", ["72,5", "", ".", "5.", "1e2", "nan", "72.5 [70]"])
def test_what_is_no_number(text):
    with pytest.raises(RepliesError, match="is no number"):
        printed_number(text)


@each_row(
    "printed, value, share, is_same",
    [
        ("72.5", 0.72549, True, True),
        ("72.5", 0.7255, True, True),  # rounded to even
        ("72.6", 0.7255, True, True),  # rounded upwards
        ("72.5", 0.72551, True, False),
        ("72.5", 0.72449, True, False),
        ("72", 0.7249, True, True),
        ("72.50", 0.7249, True, False),
        ("0.725", 0.725, True, False),
        ("0.125", 0.12549, False, True),
        ("12.5", 0.125, False, False),
        ("33.3", 1 / 3, True, True),
        ("0", float("nan"), True, False),
    ],
)
def test_rounding(printed, value, share, is_same):
    assert is_rounded(Decimal(printed), value, share) is is_same


def test_another_metric_is_checked(medtasks, pmc, tmp_path):
    target = tmp_path / "check.json"

    assert (
        medtasks(
            "check",
            PMC,
            pmc,
            "--printed",
            "39.96",
            "--metric",
            "fallback_rate",
            "--json",
            target,
        ).code
        == 1
    )

    content = json.loads(target.read_text())
    shown = [
        content[name] for name in ("metric", "printed", "consistent", "samples", "missing")
    ]
    assert shown == ["fallback_rate", "39.96", False, 6, 1]
    assert content["counts"] == {"scored": 5, "failed": 0, "unjudged": 0}
    assert content["compared"]["score"]["value"] == pytest.approx(0.4)
    assert (content["guessed"], content["valued"], content["explanations"]) == (0, None, {})
    assert content["careful"]["score"]["value"] is None


def test_what_cannot_be_checked_has_its_own_exit_code(medtasks, pmc, tmp_path):
    for printed, metric, fault in (
        ("many", "accuracy", "--printed many is no number"),
        ("181", "accuracy", "--printed 181 is no percentage, and 'accuracy' is a share"),
        ("80", "acuracy", "unknown metric 'acuracy'; did you mean 'accuracy'?"),
    ):
        ran = medtasks("check", PMC, pmc, "--printed", printed, "--metric", metric)
        assert (ran.code, ran.out) == (2, "")
        assert fault in ran.err
    ran = medtasks("check", PMC, tmp_path / "none.jsonl", "--printed", "80")
    assert ran.code == 2
    assert "none.jsonl" in ran.err


def test_a_rule_that_reads_all_replies_by_similarity(medtasks, tmp_path, monkeypatch, write):
    """Where a rule does not tell its guesses, those count that a careful reading cannot read."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("medqa")
    documents = load_documents("multimedeval_medqa")
    replies = [
        "Aspirin or Heparin",
        *(document["answer"] for document in documents[1:]),
    ]  # the first is Aspirin
    lines = (
        {"doc_id": row["doc_id"], "reply": text}
        for row, text in zip(documents, replies, strict=True)
    )

    ran = medtasks("check", "multimedeval_medqa", write(*lines), "--printed", "75")

    assert ran.code == 1
    assert "gives 100.0% [" in ran.out
    assert (
        "; 25.0 pts of it are replies in which a careful reading finds no answer; " in ran.out
    )
    assert "It is the number under the rule 'robust' (robust_choice v" in ran.out


def test_a_number_that_nothing_explains(medtasks, pmc):
    ran = medtasks("check", PMC, pmc, "--printed", "81")
    assert ran.code == 1
    assert "Not consistent: 81% is 1.0 pts above it.\nINCOMPLETE DATA" in ran.out


def kit_file(folder, rows):
    """MedEvalKit's results.json of replies to PMC-VQA, by question and gold."""
    path = folder / "results.json"
    choices = [" A: T: testes ", " B:\u00a0White: pale ", " C: Blue", " D: None "]
    lines = [
        {"prompt": text, "answer": gold, "choices": choices, "response": reply}
        for text, gold, reply in rows
    ]
    path.write_text(json.dumps(lines))
    return path


def test_a_check_counts_the_samples_that_its_metric_is_about(
    medtasks, tmp_path, monkeypatch, write
):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("vqa_rad")
    documents = load_documents(
        "multimedeval_vqa_rad"
    )  # answers are yes, left lung, no, an {MRI}
    replies = write(*({"doc_id": row["doc_id"], "reply": "yes"} for row in documents))
    ran = medtasks("check", "multimedeval_vqa_rad", replies, "--printed", "50")
    assert ran.code == 0
    assert ran.out.startswith(
        "Printed closed_accuracy 50%; the published rule (multimedeval_vqa_head v"
    )
    assert " on 4 of 4 samples, 2 of which it is about; " in ran.out


def test_file_of_a_kit(medtasks, pmc, tmp_path):
    """Of six samples two are answered, one wrongly; a third row is of another task."""
    asked = [(" What is 0?", "A", "A"), (" What is 3?", "D", "A"), ("Who?", "A", "A")]
    ran = medtasks("check", PMC, kit_file(tmp_path, asked), "--printed", "50")
    assert ran.code == 0
    assert (
        "on 2 of 6 samples (4 without a reply); 1 of 3 rows of the file are matched to none; a careful"
        in ran.out
    )
    assert "Matched: 2 of 6 samples" in ran.out


def test_a_file_with_gold_stands_in_for_the_data(medtasks, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    path = kit_file(
        tmp_path, [("Q0", "A", "A"), ("Q1", "B", "blu"), ("Q2", "C", "C"), ("Q3", "D", "")]
    )

    for command in (("check", PMC, path, "--printed", "50"), ("score", PMC, path)):
        ran = medtasks(*command)
        assert ran.code == 0
        assert (
            f"Options and gold come from this file: the data of '{PMC}' are not prepared here"
            in ran.out
        )
        assert "INCOMPLETE DATA" in ran.out


def test_a_file_without_options_cannot_stand_in_for_the_data(medtasks, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))

    ran = medtasks("check", PMC, kit_file(tmp_path, [("Q0", "", "A")]), "--printed", "50")

    assert ran.code == 2
    assert "run 'medtasks data prepare medevalkit_pmc_vqa'" in ran.err
    assert "the file cannot stand in for the data: 1 of 1 questions lack an option" in ran.err


def test_a_number_of_pairs_is_checked(medtasks, constant):
    ran = medtasks(
        "check",
        "mediconfusion",
        constant(),
        "--printed",
        "50.0",
        "--metric",
        "individual_accuracy",
    )

    assert ran.code == 0
    assert "by similarity" not in ran.out
    assert medtasks("check", "mediconfusion", constant(), "--printed", "0").code == 0


def test_replies_without_a_number_are_no_reason_for_a_printed_one(medtasks, constant):
    without_number = medtasks(
        "check", "mediconfusion", constant(2, "?"), "--printed", "0", "--metric", "confusion"
    )

    assert without_number.code == 1
    assert "gives no number on 2 of 32 samples" in without_number.out
