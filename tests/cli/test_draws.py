"""From a draw to estimates of the whole benchmark, and what the commands say of them."""

import json
import shutil

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.home import dataset_folder

from .conftest import rows_of

ESTIMATE = (
    "Estimate of all 120 questions from {} drawn ones (seed 0{}): weighted, interval for the full "
    "benchmark; assumes only that the draw was random."
)
EXAM = "multimedeval_exam"


@pytest.fixture
def exam(tmp_path, monkeypatch, medtasks):
    """A prepared set of 120 questions, which get harder, and replies of two models to all of them."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    samples = []
    for number in range(120):
        right = "one" if number % 3 else "two"
        samples.append(
            {"question": f"Question {number}?", "options": ["one", "two"], "answer": right}
        )
    folder = tmp_path / "exam"
    folder.mkdir()
    content = {"taskType": "QA", "modality": "X", "samples": samples}
    (folder / "dataset.json").write_text(json.dumps(content))
    ran = medtasks("data", "prepare", "--from-folder", folder, "--access", "public")
    assert ran.code == 0, ran.err
    replies = {}
    for model, hard in (("a", 7), ("b", 5)):
        replies[model] = {}
        for number, document in enumerate(load_documents(EXAM)):
            is_right = number % hard > number // 40
            wrong = "B" if document["answer"] == "A" else "A"
            replies[model][document["doc_id"]] = document["answer"] if is_right else wrong
    return replies


def write(path, replies, documents):
    lines = [
        json.dumps({"doc_id": document["doc_id"], "reply": replies[document["doc_id"]]})
        for document in documents
        if document["doc_id"] in replies
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def accuracy(file):
    return json.loads(file.read_text())["rules"]["robust"]["metrics"]["accuracy"]


@pytest.fixture
def drawn(exam, medtasks, tmp_path):
    """Draw 40 questions by their answers; return what was printed, and the replies of both models to them."""
    ran = medtasks("data", "select", EXAM, "--draw", 40, "--by", "answer", "--as", "exam_draw")
    assert ran.code == 0, ran.err
    documents = load_documents("exam_draw")
    return ran.out, [write(tmp_path / f"{name}.jsonl", exam[name], documents) for name in "ab"]


DRAWN = ESTIMATE.format(40, ", by answer")


def test_a_draw_takes_the_same_share_of_each_stratum(drawn):
    out, _ = drawn

    documents = load_documents("exam_draw")
    assert (
        f"{EXAM}: {len(documents)} of 120 questions drawn at random (seed 0, by answer)" in out
    )
    assert rows_of(out)["A"] == ["27 of 80", "27 of 80"]
    draw = Manifest.read(dataset_folder("exam_draw")).draw
    numbers = [(part.name, part.existing, part.drawn) for part in draw.strata]
    assert numbers == [("A", 80, 27), ("B", 40, 13)]


def test_the_score_of_a_draw_is_weighted_by_stratum(drawn, exam, medtasks, tmp_path):
    _, files = drawn
    scores = tmp_path / "scores.json"

    medtasks("score", "exam_draw", files[0], "--json", scores)

    right = {letter: [] for letter in "AB"}
    for document in load_documents("exam_draw"):
        right[document["answer"]].append(exam["a"][document["doc_id"]] == document["answer"])
    weighted = 80 * sum(right["A"]) / 27 + 40 * sum(right["B"]) / 13
    assert accuracy(scores) == pytest.approx(weighted / 120, abs=1e-12)


def test_the_score_of_a_draw_is_called_an_estimate(drawn, medtasks, tmp_path):
    _, files = drawn
    scores = tmp_path / "scores.json"

    ran = medtasks("score", "exam_draw", files[0], "--json", scores)

    assert DRAWN in ran.out.splitlines()
    assert json.loads(scores.read_text())["draw_notes"][0] == DRAWN


def test_runs_on_a_draw_are_compared_by_the_test_of_the_draw(drawn, medtasks, tmp_path):
    _, files = drawn
    compared = tmp_path / "compared.json"

    ran = medtasks("compare", "exam_draw", *files, "--json", compared)

    assert f"Note: {DRAWN.rstrip('.')}." in ran.out.splitlines()
    test = json.loads(compared.read_text())["comparisons"][0]
    assert test["test"] == "t of the draw"


def test_a_board_calls_scores_of_a_draw_estimates(drawn, medtasks):
    _, files = drawn
    assert DRAWN in medtasks("board", "exam_draw", *files).out.replace("exam_draw: ", "")


def test_a_page_calls_scores_of_a_draw_estimates(drawn, medtasks, tmp_path):
    _, files = drawn
    page = tmp_path / "page.html"

    ran = medtasks("report", files[0], "--task", "exam_draw", "--html", page)

    assert f"note: exam_draw: {DRAWN}" in ran.out.splitlines()
    assert DRAWN in page.read_text()


def test_a_draw_of_all_gives_the_score_of_the_whole_without_a_width(exam, medtasks, tmp_path):
    medtasks("data", "select", EXAM, "--draw", 120, "--by", "answer", "--as", "exam_all")
    files = {}
    for task in (EXAM, "exam_all"):
        replies = write(tmp_path / f"{task}.jsonl", exam["a"], load_documents(task))
        files[task] = tmp_path / f"{task}.json"
        ran = medtasks("score", task, replies, "--json", files[task])
    assert accuracy(files["exam_all"]) == accuracy(files[EXAM])
    low = high = f"{100 * accuracy(files[EXAM]):.1f}"
    assert rows_of(ran.out)["accuracy"][1] == f"{low}% [{low} to {high}]"
    assert "All 120 questions of the benchmark were drawn and answered" in ran.out


@pytest.fixture
def five_missing(drawn, exam):
    """The replies of one model without those to five drawn questions of answer B."""
    documents = load_documents("exam_draw")
    lost = [document["doc_id"] for document in documents if document["answer"] == "B"][:5]
    return {doc_id: reply for doc_id, reply in exam["a"].items() if doc_id not in lost}


def test_missing_replies_are_weighed_within_their_stratum(five_missing, medtasks, tmp_path):
    documents = load_documents("exam_draw")
    file = write(tmp_path / "a.jsonl", five_missing, documents)
    scores = tmp_path / "scores.json"

    ran = medtasks("score", "exam_draw", file, "--json", scores)

    assert (
        "5 drawn questions have no reply: the others of their stratum stand for them" in ran.out
    )
    right = {letter: [] for letter in "AB"}
    for document in documents:
        if document["doc_id"] in five_missing:
            reply = five_missing[document["doc_id"]]
            right[document["answer"]].append(reply == document["answer"])
    weighted = 80 * sum(right["A"]) / 27 + 40 * sum(right["B"]) / 8
    assert accuracy(scores) == pytest.approx(weighted / 120, abs=1e-12)


def test_a_stratum_without_replies_is_in_no_score(five_missing, medtasks, tmp_path):
    documents = [row for row in load_documents("exam_draw") if row["answer"] == "A"]
    file = write(tmp_path / "a.jsonl", five_missing, documents)
    assert (
        "1 of 2 strata have none and are in no score"
        in medtasks("score", "exam_draw", file).out
    )


def test_failed_replies_are_represented_by_the_others_of_their_stratum(
    exam, medtasks, tmp_path
):
    medtasks("data", "select", EXAM, "--draw", 40, "--by", "answer", "--as", "exam_draw")
    documents = load_documents("exam_draw")
    failed = [document["doc_id"] for document in documents if document["answer"] == "B"][:5]
    replies = exam["a"] | dict.fromkeys(failed)
    scores = {}
    for name, of_run in (("failed", replies), ("missing", {**exam["a"]})):
        if name == "missing":
            of_run = {doc_id: reply for doc_id, reply in of_run.items() if doc_id not in failed}
        file = write(tmp_path / f"{name}.jsonl", of_run, documents)
        ran = medtasks(
            "score",
            "exam_draw",
            file,
            "--max-failed",
            "50%",
            "--json",
            tmp_path / f"{name}.json",
        )
        assert ran.code == 0, ran.err
        assert "5 drawn questions have no reply" in ran.out
        scores[name] = accuracy(tmp_path / f"{name}.json")
    assert scores["failed"] == pytest.approx(scores["missing"], abs=1e-12)


@pytest.fixture
def helped(exam, medtasks, tmp_path):
    """Replies to a draw of 60 questions, and replies of the helping model to all."""
    medtasks("data", "select", EXAM, "--draw", 60, "--as", "exam_draw")
    replies = write(tmp_path / "a.jsonl", exam["a"], load_documents("exam_draw"))
    return replies, write(tmp_path / "same.jsonl", exam["a"], load_documents(EXAM))


def test_another_model_helps_a_draw(helped, medtasks, tmp_path):
    replies, same = helped
    scores = tmp_path / "scores.json"
    medtasks("score", EXAM, same, "--json", scores)
    truth = accuracy(scores)

    ran = medtasks("score", "exam_draw", replies, "--helped-by", same, "--json", scores)

    assert accuracy(scores) == pytest.approx(truth, abs=1e-12)
    assert f"accuracy (robust): helped by {same} on all questions" in ran.out


def test_a_page_says_that_another_model_helped(helped, medtasks, tmp_path):
    replies, same = helped
    page = tmp_path / "page.html"

    ran = medtasks(
        "report", replies, "--task", "exam_draw", "--helped-by", same, "--html", page
    )

    assert f"note: exam_draw: accuracy (robust): helped by {same}" in ran.out


def test_another_model_helps_no_whole_set(helped, fails):
    _, same = helped
    fails(["score", EXAM, same, "--helped-by", same], "--helped-by", f"'{EXAM}' is none")


def test_combinations_without_a_meaning_are_refused(exam, medtasks, fails, tmp_path):
    select = ["data", "select", EXAM]
    fails([*select, "--draw", 20, "--where", "answer=A"], "--draw stands for all questions")
    fails([*select, "--by", "answer"], "give --draw, too")
    fails([*select, "--draw", 20, "--by", "anwser"], "column", "answer")
    medtasks(*select, "--draw", 40, "--as", "exam_draw")
    fails(["data", "select", "exam_draw", "--draw", 20], f"is itself a part of '{EXAM}'")
    file = write(tmp_path / "a.jsonl", exam["a"], load_documents("exam_draw"))
    fails(["compare", "exam_draw", file, file, "--equivalence", 0.1], "drawn from a larger set")


def test_a_manifest_without_a_draw_can_be_read(exam, medtasks, tmp_path):
    folder = dataset_folder(EXAM)
    content = json.loads((folder / "manifest.json").read_text())
    assert content.pop("draw") is None
    shutil.copytree(folder, tmp_path / "older")
    (tmp_path / "older" / "manifest.json").write_text(json.dumps(content))
    assert Manifest.read(tmp_path / "older").draw is None


def test_a_plan_says_which_interval_how_many_questions_give(exam, medtasks, tmp_path):
    plan = tmp_path / "plan.json"
    ran = medtasks("plan", EXAM, "--draw", "--against", 0.5, "--json", plan)
    draws = json.loads(plan.read_text())["draws"]
    assert [draw["questions"] for draw in draws] == [20, 50, 100]
    # Wilson's for 50 of 120 questions, which are worth 50 / (1 - 50 / 120) independent ones.
    effective, quantile = 50 / (1 - 50 / 120), 2.0095752
    half = quantile * (effective / 4 + quantile**2 / 4) ** 0.5 / (effective + quantile**2)
    assert draws[1]["half_width"] == pytest.approx(half, abs=1e-6)
    assert rows_of(ran.out)["50"] == ["50", f"± {100 * half:.1f} pts"]
