"""Files of other kits in ``score``, ``report``, ``compare`` and the Python API."""

import json

import pytest

import medtasks as api
from medtasks.errors import RepliesError

from .conftest import rows_of

YAML = "task: kit_asked\nfamily: single_choice\ndata: questions.jsonl\nimage: none\n"
QUESTIONS = [f"Which part is shown in frame {number}?" for number in range(8)]
OPTIONS = ["rim", "tip", "bulb"]
REPLIES = ["A", "A", "A", "A", "B", "A", "", "A"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a task of our own and eight questions, whose answer is A."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    rows = [
        {"doc_id": f"q-{n}", "question": text, "options": OPTIONS, "answer": "A"}
        for n, text in enumerate(QUESTIONS)
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "kit_asked.yaml").write_text(YAML)
    return tmp_path


def medevalkit(folder, replies=REPLIES, name="results.json", options=OPTIONS):
    """Write the file of a set without ids."""
    rows = []
    for question, reply in zip(QUESTIONS, replies, strict=False):
        choices = [f"{letter}. {option}" for letter, option in zip("ABC", options, strict=True)]
        prompt = "\n".join(
            (
                f"\nQuestion: {question}",
                "Options: ",
                *choices,
                "Answer with the option's letter.",
            )
        )
        rows.append(
            {
                "prompt": prompt,
                "answer": "A",
                "choices": choices,
                "response": reply,
                "correct": True,
            }
        )
    (folder / name).write_text(json.dumps(rows, indent=4))
    return folder / name


@pytest.fixture
def seven_of_eight(medtasks, folder):
    """Score seven replies from a file of MedEvalKit; return what was printed and the JSON."""
    file = medevalkit(folder, REPLIES[:7])
    written = folder / "scores.json"
    ran = medtasks("score", "kit_asked", file, "--include_path", folder, "--json", written)
    assert (ran.code, ran.err) == (0, "")
    return ran.out, json.loads(written.read_text())


def test_score_says_that_other_prompts_were_asked(seven_of_eight):
    out, _ = seven_of_eight
    assert out.splitlines()[0] == (
        "Replies: 'response' (MedEvalKit). Scores are those of the prompts that were asked there, not of ours, under "
        "our rules."
    )


def test_score_says_how_rows_were_matched(seven_of_eight):
    out, scores = seven_of_eight

    sentence = "Matched: 7 of 8 samples (rows: 7 by prompt); 1 empty, 1 missing."
    assert out.splitlines()[1] == sentence
    matching = scores["matching"]
    assert (matching["kit"], matching["matched"], matching["matched_by"]) == (
        "MedEvalKit",
        7,
        {"prompt": 7},
    )
    assert (scores["replies"], scores["missing"], matching["missing"]) == (7, 1, 1)


def test_rows_that_match_are_scored(seven_of_eight):
    out, scores = seven_of_eight

    assert rows_of(out, "kit_asked: 7 of 8")["accuracy"][0].startswith("71.4%")
    assert scores["rules"]["robust"]["metrics"]["accuracy"] == 5 / 7


@pytest.fixture
def score_table(folder):
    """The command that scores a table whose columns have names of the user's own."""
    rows = ["case,raw, text", *(f"q-{number},=A,x" for number in range(8))]
    (folder / "table.csv").write_text("\n".join(rows))
    return ["score", "kit_asked", folder / "table.csv", "--include_path", folder]


def test_columns_are_named(medtasks, fails, score_table):
    fails(score_table, "--columns reply=NAME")
    ran = medtasks(*score_table, "--columns", "reply=raw,id=case")
    assert "Matched: 8 of 8 samples (rows: 8 by id)" in ran.out


def test_columns_without_a_role_are_wrong_usage(medtasks, score_table):
    ran = medtasks(*score_table, "--columns", "raw")

    assert ran.code == 2
    assert "--columns raw" in ran.err


def test_misspelt_columns_and_formats_are_refused(fails, score_table):
    fails([*score_table, "--columns", "reply=row"], "'row'", "did you mean 'raw'")
    fails([*score_table, "--format", "medevalki"], "did you mean 'medevalkit'?")


def batch_lines(number):
    """Return the request of a question, and its output with two replies."""
    prompt = f"{QUESTIONS[number]}\nA. rim\nB. tip\nC. bulb\nAnswer:"
    name = f"r{number}"
    request = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions"}
    request["body"] = {"messages": [{"role": "user", "content": prompt}]}
    choices = [{"message": {"content": text}} for text in (REPLIES[number], "A")]
    response = {"status_code": 200, "body": {"choices": choices}}
    return request, {"custom_id": name, "response": response, "error": None}


@pytest.fixture
def two_replies_each(folder):
    """The output of a batch with two replies to each question, and its requests."""
    files = (folder / "output.jsonl", folder / "requests.jsonl")
    requests, outputs = zip(*(batch_lines(number) for number in range(8)), strict=True)
    for file, lines in zip(files, (outputs, requests), strict=True):
        file.write_text("\n".join(map(json.dumps, lines)))
    return files


def test_each_run_of_a_file_is_scored(medtasks, folder, two_replies_each):
    ran = medtasks("score", "kit_asked", *two_replies_each, "--include_path", folder)

    assert "Matched: 8 of 8 samples in 2 runs (rows: 16 by prompt)" in ran.out
    cells = rows_of(ran.out, "kit_asked: 8 of 8")["accuracy"]
    assert [cell.split("%")[0] for cell in cells] == ["75.0", "100.0"]


def test_python_refuses_several_runs_of_a_file(folder, two_replies_each):
    with pytest.raises(
        RepliesError, match="holds 2 runs of each question; 'medtasks score' scores each"
    ):
        api.score("kit_asked", folder, include_path=folder)


def test_compare_reads_files_of_other_kits(medtasks, folder):
    files = [medevalkit(folder), medevalkit(folder, ["A"] * 8, "second.json")]
    written = folder / "compared.json"

    ran = medtasks("compare", "kit_asked", *files, "--include_path", folder, "--json", written)

    assert ran.code == 0
    assert "Note: B: Matched: 8 of 8 samples (rows: 8 by prompt)" in ran.out
    compared = json.loads(written.read_text())
    assert compared["comparisons"][0]["difference"] == 0.25
    assert any(
        warning.startswith("A: Replies: 'response' (MedEvalKit)")
        for warning in compared["warnings"]
    )


def test_report_reads_files_of_other_kits(medtasks, folder):
    page = folder / "report.html"
    shown = ("report", medevalkit(folder), "--task", "kit_asked", "--include_path", folder)

    medtasks(*shown, "--html", page)

    assert "Matched: 8 of 8 samples" in page.read_text()


def test_python_reads_files_of_other_kits(folder):
    second = medevalkit(folder, ["A"] * 8, "second.json")
    scores = api.score("kit_asked", medevalkit(folder), include_path=folder)
    assert scores.table().query("metric == 'accuracy'").value.item() == 0.75
    assert api.score("kit_asked", str(second), include_path=folder).answered == 8


def test_options_in_another_order_are_not_scored(fails, folder):
    file = medevalkit(folder, options=OPTIONS[::-1])
    fails(
        ["score", "kit_asked", file, "--include_path", folder],
        "options in another order (8): row 0 (",
    )


def test_the_nearest_task_is_named(fails, folder):
    (folder / "other.yaml").write_text(
        YAML.replace("kit_asked", "other").replace("questions", "others")
    )
    rows = [
        {"doc_id": n, "question": f"Who is {n}?", "options": OPTIONS, "answer": "A"}
        for n in range(8)
    ]
    (folder / "others.jsonl").write_text("\n".join(map(json.dumps, rows)))
    file = medevalkit(folder)
    fails(
        ["score", "other", file, "--include_path", folder],
        "8 of 8 rows that were tried are questions of 'kit_asked'",
    )


def test_a_samples_file_of_another_task_is_no_list_of_our_rows(fails, folder):
    """Each ``doc_id`` is the number of a row that we have, and says nothing."""
    keys = {"target": "A", "doc_hash": "7", "filter": "none"}
    lines = [
        {
            "doc_id": n,
            "resps": [["A"]],
            "filtered_resps": ["A"],
            "arguments": {"gen_args_0": {"arg_0": f"Who? {n}"}},
            **keys,
        }
        for n in range(8)
    ]
    (folder / "samples_x_2026-11-01.jsonl").write_text("\n".join(map(json.dumps, lines)))
    fails(
        ["score", "kit_asked", folder / "samples_x_2026-11-01.jsonl", "--include_path", folder],
        "0 of 8 samples are matched, and 8 of 8 rows answer none. no question of this task (8): row 0 (Who? 0)",
    )


def test_samples_files_of_another_task_are_compared_by_their_texts(medtasks, folder):
    """Line by line they are in another order than our questions, and there are more of them."""
    for name, reply in (("a", "A"), ("b", "B")):
        lines = []
        for number, question in enumerate(["Who?", *QUESTIONS[::-1]]):
            prompt = f"{question}\nA. rim\nB. tip\nC. bulb\nAnswer:"
            lines.append(
                {"doc_id": number, "filtered_resps": reply, "input": prompt, "target": "A"}
            )
        (folder / f"20261101_102030_samples_{name}.jsonl").write_text(
            "\n".join(map(json.dumps, lines))
        )
    files = sorted(folder.glob("*_samples_*.jsonl"))

    ran = medtasks("compare", "kit_asked", *files, "--include_path", folder, "--margin", "0.1")

    assert (ran.code, ran.err) == (0, "")
    assert "8 of 8 documents answered in both are compared" in ran.out
    assert "Note: A: Rows of no sample, left out: 1 of 9" in ran.out
