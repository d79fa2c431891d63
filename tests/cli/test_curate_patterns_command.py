"""``medtasks curate patterns``: failure modes in words."""

import pytest

from medtasks.curate.drafts import DraftOutcome, open_llm
from medtasks.curate.pairs.pair_drafts import draft_pairs

from ..curate.made_up_pairs import DraftingLLM, write_study
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
    (tmp_path / "dataset.json").write_text('{"1": {"cap_1": "x"}}')
    fails([*arguments, "--source", tmp_path], "dataset.json is malformed")
