"""``medtasks curate patterns``: failure modes in words, and from results."""

import json

import pytest

from medtasks.curate.drafts import DraftOutcome, open_llm
from medtasks.curate.pairs.pair_drafts import draft_pairs
from medtasks.curate.study import PAIRS, ImagePair, Study, StudyKind, write_lines
from medtasks.data.catalogue import Access
from medtasks.data.document_store import load_documents
from medtasks.runs.logged_samples import logged

from ..curate.made_up_pairs import DraftingLLM, write_study
from ..made_up_runs import write_run
from ..scripted_server import Endpoint, serving


@pytest.fixture
def llm(monkeypatch):
    with serving(Endpoint()) as endpoint:
        for name, value in {"BASE_URL": endpoint.url, "MODEL": "m", "ATTEMPTS": "1"}.items():
            monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
        yield DraftingLLM(endpoint)


def test_failure_modes_of_a_study_are_written_a_hundred_pairs_at_a_time(medtasks, fails, tmp_path, llm):
    folder = tmp_path / "study"
    study = write_study(folder, 102)
    fails(["curate", "patterns", folder], "no pair of 'our_pairs' has a question")
    assert draft_pairs(folder, open_llm(study))[DraftOutcome.DRAFTED] == 102
    ran = medtasks("curate", "patterns", folder)
    assert (ran.code, ran.out) == (0, f"{folder / 'patterns.md'}: 2 of 2 requests answered\n")
    written = (folder / "patterns.md").read_text()
    assert (
        "## 100 pairs, p0 to p99\n\n1. Left and right\n2. Masses\n\nPairs by their number in the prompt: 0: p0, 1: p1"
        in written
    )
    assert "## 2 pairs, p100 to p101" in written
    prompts = sorted(llm.asked("I am analyzing"), key=len)
    assert prompts[1].count("\nPair ") == 100
    assert "vision models.\nPair 0\nFirst" in prompts[1]
    assert "\nPair 99\nFirst" in prompts[1]
    assert "\nPair 1\nFirst image description: Axial contrast-enhanced" in prompts[0]
    assert "\nConfusing multiple choice question: On which side is the mass? (A) " in prompts[0]
    before = llm.server.count
    medtasks("curate", "patterns", folder, "--out", tmp_path / "again.md")
    assert (tmp_path / "again.md").read_text() == written
    assert llm.server.count == before


def test_failure_modes_of_the_published_pairs(medtasks, fails, test_data, tmp_path, llm):
    out = tmp_path / "modes.md"
    arguments = ["curate", "patterns", "mediconfusion", "--source", test_data / "mediconfusion", "--out", out]
    llm.said = {"What do you see on this angiogram": [llm.server.reply("I'm sorry, but I can't.")]}
    assert medtasks(*arguments).out == f"{out}: 1 of 2 requests answered\n"
    assert "No reply: the LLM would not." in out.read_text()
    fails(["curate", "patterns", "mediconfusion"], "'mediconfusion' is not prepared", "--source")
    fails([*arguments, "--json", "a.json"], "name runs with --results")
    (tmp_path / "dataset.json").write_text('{"1": {"cap_1": "x"}}')
    fails([*arguments, "--source", tmp_path], "dataset.json is malformed")


def test_results_say_which_pairs_confuse_which_models(medtasks, fails, source, tmp_path):
    runs = [write_run(tmp_path / "model0", ["mediconfusion", "mediconfusion_ff"], 0.6, 0)]
    runs.append(write_run(tmp_path / "model1", ["mediconfusion"], 0.6, 1))
    found_file = tmp_path / "found.json"
    given = [argument for run in runs for argument in ("--results", run)]
    arguments = ["curate", "patterns", "mediconfusion", "--source", source, *given]
    ran = medtasks(*arguments, "--json", found_file, "--top", 3)
    assert (ran.code, ran.err) == (0, "")
    assert "A: model0, mediconfusion (robust, robust_choice v" in ran.out
    assert "Most confusing 3 of 16 pairs:" in ran.out
    assert "SAMPLE DATA" in ran.out
    assert f"Left out: mediconfusion_ff of {runs[0]}: this task needs an LLM judge" in ran.out
    found = json.loads(found_file.read_text(), parse_constant=pytest.fail)
    assert [sum(one["pairs"].values()) for one in found["models"].values()] == [16, 16]
    assert found["models"]["A"]["pairs"]["failed"] == 0
    assert len(found["pairs"]) == 16
    assert {one["model"] for one in found["associations"]} == {"A", "B", "all"}
    first = found["pairs"][0]
    assert first["pair_id"] in ran.out
    assert first["gap"] == pytest.approx(first["sim_med"] - first["sim_gen"])
    fails([*arguments, "--results", tmp_path / "nowhere"], "nowhere")
    results = next(runs[1].rglob("*_results.json"))
    fingerprint = json.loads(results.read_text())["configs"]["mediconfusion"]["metadata"]["data"]["fingerprint"]
    results.write_text(results.read_text().replace(fingerprint, "f" * len(fingerprint)))
    ran = medtasks(*arguments)
    assert f"Left out: mediconfusion of {runs[1]}: " in ran.out
    assert "was made on data with fingerprint ffff" in ran.out
    write_run(tmp_path / "cut", ["mediconfusion"], 0.6, 1, samples=False)
    fails([*arguments, "--results", tmp_path / "cut"], "holds no samples of mediconfusion")


def test_results_of_a_study_go_by_its_own_similarities(medtasks, fails, sample, tmp_path, monkeypatch):
    run = write_run(tmp_path / "model", ["mediconfusion"], 0.6, 1)
    folder = tmp_path / "study"
    write_study(folder)
    fails(["curate", "patterns", folder, "--results", run], "no task asks the pairs of 'our_pairs'")
    Study(name="mediconfusion", kind=StudyKind.PAIRS, access=Access.PUBLIC, source="made up").write(folder)
    fails(["curate", "patterns", folder, "--results", run], "'mediconfusion' asks none of these pairs")
    ids = list(dict.fromkeys(document["pair_id"] for document in load_documents("mediconfusion")))
    pairs = [ImagePair(pair_id=one, images=(one, f"{one}b"), sim_med=0.95, sim_gen=n / 30) for n, one in enumerate(ids)]
    write_lines(folder / PAIRS, [*pairs, ImagePair(pair_id="left out", images=("x", "y"), sim_med=1, sim_gen=0)])
    ran = medtasks("curate", "patterns", folder, "--results", run, "--top", 100)
    assert "Most confusing 16 of 16 pairs:" in ran.out  # what a review left out is no pair that failed
    assert ids[0] in ran.out
    Study(name="ours", kind=StudyKind.PAIRS, access=Access.PUBLIC, source="made up").write(folder)
    fails(["curate", "patterns", folder, "--results", run], "say with --as what it was published as")
    again = medtasks("curate", "patterns", folder, "--results", run, "--top", 100, "--as", "mediconfusion")
    assert again.out == ran.out
    monkeypatch.setattr("medtasks.cli.curate.is_private", lambda name: True)
    ran = medtasks("curate", "patterns", folder, "--results", run, "--top", 100, "--as", "mediconfusion")
    assert "Most confusing 16 of 16 pairs:" in ran.out
    assert [one for one in ids if one in ran.out] == []
    (samples,) = run.glob("*_samples_mediconfusion.jsonl")
    note = logged({"dataset": "multimedeval_mednli", "doc_id": "1"}, ["secret"], ["accuracy"], {})["resps"][0][0]
    samples.write_text(json.dumps({"doc_id": 0, "resps": [note], "filtered_resps": note}) + "\n")
    named = ["--as", "mediconfusion"]
    fails(
        ["curate", "patterns", folder, "--results", run, *named],
        "run it again with MEDTASKS_LOG_TEXT=mediconfusion set",
    )
