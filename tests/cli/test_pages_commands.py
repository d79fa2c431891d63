"""``medtasks report`` and ``data duplicates``: files written, what is said, and what is refused."""

import errno
import html
import inspect
import json
import shlex
from pathlib import Path

import pytest
from PIL import Image

from medtasks.cli import pages
from medtasks.data.duplicates.image_copies import dataset_images
from medtasks.data.duplicates.image_hashes import DISTANCE
from medtasks.data.privacy import hidden_id

from ..made_up_runs import write_run
from ..picture_sets import jpeg_bytes, prepare_set, texture, write_folder

ACCURACIES = ("set_accuracy", "individual_accuracy")


@pytest.fixture
def recorded(sample, tmp_path):
    return write_run(tmp_path / "made_up", ("mediconfusion",), 0.8, 1)


@pytest.fixture
def reported(medtasks, recorded, tmp_path):
    """Report the run in every form; return the files by what they hold."""
    files = {name: tmp_path / f"found.{name}" for name in ("md", "tex", "json")}
    ran = medtasks(
        *("report", recorded, "--markdown", files["md"], "--latex", files["tex"]),
        *("--json", files["json"], "--checklist", "claim", "--figures", tmp_path / "figures"),
    )
    assert (ran.code, ran.err) == (0, "")
    assert f"report: {recorded / 'report.html'} (" in ran.out
    assert f"checklist: {recorded / 'checklist-claim.html'}\n" in ran.out
    return files | {"page": recorded / "report.html", "figures": tmp_path / "figures"}


def test_the_page_holds_the_sentences_of_the_json(reported):
    found = json.loads(reported["json"].read_text(), parse_constant=pytest.fail)

    for sentence in found["sentences"]["mediconfusion"]:
        assert sentence in html.unescape(reported["page"].read_text())


def test_the_tables_hold_the_checklist(reported):
    assert "CLAIM, 2024 update" in reported["md"].read_text()


def test_page_and_tables_hold_the_scores_of_the_score_command(
    medtasks, reported, recorded, tmp_path
):
    medtasks(
        "score",
        "mediconfusion",
        next(recorded.glob("*.jsonl")),
        "--json",
        tmp_path / "score.json",
    )

    rules = json.loads((tmp_path / "score.json").read_text())["rules"]
    score = rules["robust"]["categories"]["total"]
    (task,) = json.loads(reported["json"].read_text())["tasks"]
    robust = next(rule for rule in task["rules"] if rule["name"] == "robust")
    values = {one["metric"]: one["value"] for one in robust["scores"]}
    assert [values[name] for name in ACCURACIES] == [score[name] for name in ACCURACIES]
    percent = f"{100 * score['individual_accuracy']:.1f}"
    for name in ("page", "md", "tex"):
        assert percent in reported[name].read_text()
        assert "SAMPLE DATA" in reported[name].read_text()


def test_figures_are_written_for_pages_and_for_print(reported):
    assert {path.suffix for path in reported["figures"].iterdir()} == {".svg", ".png"}


@pytest.fixture
def tables(recorded, tmp_path):
    """The command that reports names with control sequences, and its files by kind."""
    (results,) = recorded.glob("*_results.json")
    content = json.loads(results.read_text())
    content["results"]["mediconfusion"]["made\x1b]0;up\x07,\ud800"] = 0.5
    content["config"]["model"] = "made\x1b]0;up\x07"
    results.write_text(json.dumps(content))
    files = {name: tmp_path / f"found.{name}" for name in ("md", "tex", "json")}
    command = ["report", recorded]
    command += ["--markdown", files["md"], "--latex", files["tex"], "--json", files["json"]]
    return command, files


def test_tables_are_without_control_sequences(medtasks, tables):
    command, files = tables

    assert medtasks(*command).code == 0

    assert "made?\\]0;up?" in files["md"].read_text(encoding="utf-8")
    assert not any(
        sign in path.read_text(encoding="utf-8")
        for path in files.values()
        for sign in "\x1b\x07"
    )


def test_tables_stay_whole_on_a_full_disk(medtasks, fails, tables, tmp_path, monkeypatch):
    command, files = tables
    medtasks(*command)
    before = {path: path.read_bytes() for path in files.values()}

    def tear(path, text):
        with path.open("wb") as stream:
            stream.write(text[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", tear)

    fails(command, f"cannot write {files['md']}: No space left on device")

    assert {path: path.read_bytes() for path in files.values()} == before
    assert [path for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_a_report_without_samples_says_once_what_is_missing(medtasks, recorded):
    for samples in recorded.glob("*.jsonl"):
        samples.unlink()

    ran = medtasks("report", recorded)

    assert (ran.code, ran.err) == (0, "")
    (note,) = [line for line in ran.out.splitlines() if "--log_samples" in line]
    assert note.startswith("note: mediconfusion: ")


def test_a_file_of_replies_is_reported_with_its_task(medtasks, fails, recorded):
    (replies,) = recorded.glob("*.jsonl")

    fails(["report", replies], f"{replies} is a file", "--task")
    assert medtasks("report", replies, "--task", "mediconfusion").code == 0

    assert (recorded / "report.html").is_file()


def test_what_cannot_be_reported_is_one_sentence(fails, recorded, tmp_path):
    (tmp_path / "empty").mkdir()
    fails(
        ["report", recorded, "--html", tmp_path / "no" / "folder" / "page.html"], "cannot write"
    )
    fails(["report", tmp_path / "nowhere"], f"there is no {tmp_path / 'nowhere'}")
    fails(["report", tmp_path / "empty"], str(tmp_path / "empty"))


@pytest.fixture
def three_models(sample, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed, name in enumerate(("alpha", "beta", "gamma")):
        write_run(runs / name, ("mediconfusion",), 0.95 - 0.35 * seed, seed)
    return runs


def test_of_several_models_in_one_folder_one_is_reported(
    medtasks, fails, three_models, tmp_path
):
    file = tmp_path / "found.json"
    commands = {
        name: f"medtasks report {three_models} --model {name}"
        for name in ("alpha", "beta", "gamma")
    }
    board = f"medtasks board {three_models}"

    fails(
        ["report", three_models],
        f"{three_models} holds runs of 3 models",
        *commands.values(),
        board,
    )
    for name, command in commands.items():
        ran = medtasks(*shlex.split(command)[1:], "--json", file)
        assert (ran.code, ran.err) == (0, "")
        found = json.loads(file.read_text())
        assert found["model"] == name


def test_an_unknown_model_is_refused_with_those_of_the_folder(fails, three_models):
    fails(
        ["report", three_models, "--model", "delta"],
        "unknown model 'delta'",
        "alpha, beta, gamma",
    )


def test_published_rows_under_careful_rules_are_refused_before_scoring(
    fails, three_models, monkeypatch
):
    monkeypatch.setattr(
        "medtasks.scores.board_model.board_of", lambda *_, **__: pytest.fail("it was scored")
    )

    fails(
        ["board", three_models, "--published", "--rule", "careful"], "leave out --rule careful"
    )


def test_a_board_shows_all_models_of_a_folder(medtasks, three_models, tmp_path):
    file = tmp_path / "found.json"

    assert medtasks("board", three_models, "--json", file).code == 0

    board = {
        row["name"]: row["scores"]["mediconfusion"]
        for row in json.loads(file.read_text())["rows"]
    }
    medtasks("compare", three_models / "alpha", three_models / "gamma", "--json", file)
    tests = json.loads(file.read_text())["tasks"]["mediconfusion"]["comparisons"]
    (test,) = [
        test
        for test in tests
        if (test["metric"], test["rule"]) == ("set_accuracy", "reference")
    ]
    assert (board["alpha"]["value"], board["gamma"]["value"]) == (test["first"], test["second"])
    assert board["alpha"]["ranks"][0] == 1
    assert board["gamma"]["ranks"][1] == 3


CANARY = "zyzzyva"


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A set of five questions with one copy inside, and a folder with copies of two of its pictures."""
    monkeypatch.chdir(tmp_path)
    pictures = [
        jpeg_bytes(texture(1), 90),
        texture(2),
        texture(3),
        texture(4),
        jpeg_bytes(texture(4), 70),
    ]
    prepare_set(
        "bench",
        [{"doc_id": f"q{number}", "pictures": [one]} for number, one in enumerate(pictures)],
    )
    copies = {
        "deep/copy.jpg": pictures[0],
        "small.jpg": texture(2).resize((60, 50)),
        "else.png": texture(8),
    }
    return write_folder(
        tmp_path / "training", {**copies, "cut.jpg": pictures[0][:-700], "notes.txt": b"x"}
    )


@pytest.fixture
def duplicates(medtasks, bench):
    """Look for duplicates of the set; return what the JSON holds."""
    ran = medtasks(
        *("data", "duplicates", "bench", "--against", bench, "--html", "p.html"),
        *("--json", "f.json", "--list", "l.txt"),
    )
    assert ran.code == 0
    return json.loads(Path("f.json").read_text())


def test_the_list_holds_the_ids_to_leave_out(duplicates):
    assert Path("l.txt").read_text().split() == duplicates["left_out"] == ["q0", "q1", "q4"]


def test_the_json_names_data_and_settings(duplicates):
    assert duplicates["settings"]["distance"] == 40
    assert duplicates["data"]["fingerprint"]
    # The command repeats the default, because it starts without NumPy.
    assert inspect.signature(pages.duplicates).parameters["distance"].default == DISTANCE


def test_the_json_holds_copies_in_the_other_folder(duplicates):
    copy, small = duplicates["against"]["findings"]
    assert (copy["kind"], copy["first"]["questions"]) == ("same file", ["q0"])
    assert copy["second"]["picture"] == "deep/copy.jpg"
    assert (small["kind"], small["first"]["questions"], small["second"]["size"]) == (
        "looks the same",
        ["q1"],
        [60, 50],
    )
    assert small["likeness"] >= duplicates["settings"]["likeness"]
    assert list(duplicates["against"]["unreadable_files"]) == ["cut.jpg"]


def test_the_json_holds_copies_within_the_set(duplicates):
    (twice,) = duplicates["within"]
    assert twice["concern"] == "different image ids"
    assert twice["first"]["questions"] + twice["second"]["questions"] == ["q3", "q4"]


def test_the_page_of_duplicates_is_where_the_user_wants_it(duplicates):
    assert Path("p.html").is_file()
    assert not Path("bench_duplicates.html").exists()


def test_two_prepared_sets_are_compared(medtasks, bench):
    prepare_set("second", [{"doc_id": "r1", "pictures": [texture(3)]}])

    medtasks("data", "duplicates", "bench", "--against", "second", "--json", "f.json")

    (finding,) = json.loads(Path("f.json").read_text())["against"]["findings"]
    assert (finding["first"]["questions"], finding["second"]["questions"]) == (["q2"], ["r1"])


def test_duplicates_can_fail_a_gate(fails, bench):
    fails(
        ["data", "duplicates", "bench", "--fail-on-found"],
        "1 duplicate found in 'bench'",
        "bench_duplicates.html",
    )


def test_duplicates_that_cannot_be_looked_for_are_one_sentence(fails, bench, tmp_path):
    fails(["data", "duplicates", "bench", "--against", "bench"], "leave out --against")
    fails(
        ["data", "duplicates", "bench", "--html", tmp_path / "no" / "p.html"],
        "cannot write the page",
        "--html",
    )


def test_a_set_without_duplicates_passes_a_gate(medtasks, bench, tmp_path):
    prepare_set("clean", [{"doc_id": "q1", "pictures": [texture(1)]}])
    folder = write_folder(tmp_path / "other", {"x.png": texture(2)})

    ran = medtasks(
        "data",
        "duplicates",
        "clean",
        "--against",
        folder,
        "--fail-on-found",
        "--list",
        "out.txt",
    )

    assert (ran.code, Path("out.txt").read_text(), "leave out" in ran.out) == (0, "", False)
    assert "No image of clean was found there." in ran.out
    assert "clean holds no image twice." in ran.out
    assert "No picture of" in Path("clean_duplicates.html").read_text()


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """A credentialed set, whose every name holds the canary, and a folder with copies of its pictures likewise."""
    monkeypatch.chdir(tmp_path)
    pictures = [texture(1), texture(2), texture(2), Image.new("L", (30, 30), 7)]
    names = [
        {"doc_id": f"{CANARY}-{n}", "image_id": f"{CANARY}_i{n}", "patient_id": CANARY}
        for n in range(4)
    ]
    rows = [
        {**name, "pictures": [picture]} for name, picture in zip(names, pictures, strict=True)
    ]
    prepare_set(
        "secret", rows, [{**rows[0], "doc_id": f"{CANARY} example"}], access="credentialed"
    )
    copies = {f"{CANARY}/{CANARY}.png": texture(1), f"{CANARY}.jpg": jpeg_bytes(texture(2), 80)}
    others = {f"cut_{CANARY}.png": b"x", f"no_{CANARY}.txt": b"x"}
    return write_folder(tmp_path / f"training_{CANARY}", {**copies, **others})


def written(tmp_path):
    return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


SEARCH = ("data", "duplicates", "secret", "--list", "l.txt", "--json", "f.json", "--against")


def test_of_credentialed_data_nothing_is_shown(medtasks, secret, tmp_path):
    ran = medtasks(*SEARCH, secret)

    files = written(tmp_path)
    assert ran.code == 0
    assert sorted(files) == ["f.json", "l.txt", "secret_duplicates.html"]
    assert CANARY not in ran.out + ran.err
    assert [name for name, content in files.items() if CANARY.encode() in content] == []
    stored = [
        file.stem for picture in dataset_images("secret").images for file in picture.files
    ]
    assert [
        stem for stem in stored for content in files.values() if stem.encode() in content
    ] == []
    assert b"data:image" not in files["secret_duplicates.html"]
    assert "Credentialed data" in ran.out


def test_duplicates_of_credentialed_data_have_hidden_ids(medtasks, secret, tmp_path):
    medtasks(*SEARCH, secret)

    files = written(tmp_path)
    found = json.loads(files["f.json"])
    assert [one["concern"] for one in found["within"]] == [
        "solved example",
        "different image ids",
    ]
    assert [one["kind"] for one in found["against"]["findings"]] == [
        "same pixels",
        "looks the same",
    ]
    assert found["within"][0]["first"]["questions"] == [hidden_id("doc", f"{CANARY}-0")]
    assert found["within"][0]["first"]["picture"] == hidden_id("image", f"{CANARY}_i0")
    assert found["left_out"] == [hidden_id("doc", f"{CANARY}-{number}") for number in range(3)]
    assert files["l.txt"].decode().split() == found["left_out"]


def test_unreadable_files_next_to_credentialed_data_are_only_counted(
    medtasks, secret, tmp_path
):
    medtasks(*SEARCH, secret)

    found = json.loads(written(tmp_path)["f.json"])
    assert found["against"]["unreadable"] == 1
    assert found["against"]["unreadable_files"] == {}


def test_duplicates_of_credentialed_data_are_shown_if_the_user_says_so(
    medtasks, secret, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "secret")

    ran = medtasks(*SEARCH, secret)

    files = written(tmp_path)
    assert CANARY in ran.out
    assert CANARY.encode() in files["l.txt"]
    assert b"data:image/jpeg" in files["secret_duplicates.html"]


def test_a_credentialed_set_on_the_other_side_is_not_shown_either(medtasks, secret, tmp_path):
    prepare_set(
        "open",
        [{"doc_id": f"p1/{n}", "pictures": [texture(n)], "pair_id": "p1"} for n in (1, 5)],
    )

    ran = medtasks("data", "duplicates", "open", "--against", "secret", "--json", "f.json")

    files = written(tmp_path)
    (finding,) = json.loads(files["f.json"])["against"]["findings"]
    assert CANARY not in ran.out + ran.err
    assert [name for name, content in files.items() if CANARY.encode() in content] == []
    assert finding["first"]["questions"] == ["p1/1"]
    assert finding["second"]["questions"] == [hidden_id("doc", f"{CANARY}-0")]
    assert files["open_duplicates.html"].count(b"data:image/jpeg") == 1
