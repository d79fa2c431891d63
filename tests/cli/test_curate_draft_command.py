"""``medtasks curate draft`` and ``patterns``: questions on pairs, whatever stops a run, and failure modes in words."""

import signal
import threading
from collections import Counter

import pytest

from medtasks.curate.drafts import DraftOutcome, read_drafted, read_drafts
from medtasks.data.catalogue import Access

from ..curate.made_up_pairs import DraftingLLM, write_study
from ..processes import start_fresh
from ..waiting import PATIENCE, wait_until


@pytest.fixture
def llm(endpoint):
    return DraftingLLM(endpoint)


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    write_study(folder, 6, access=Access.CREDENTIALED)
    return folder


def test_questions_and_categories_are_drafted_and_a_limit_is_gone_on_from(medtasks, fails, study, llm):
    ran = medtasks("curate", "draft", study, "--max-requests", 4)
    assert ran.code == 0
    assert [line.split()[:4] for line in ran.out.splitlines()[1:4]] == [
        ["4", "pairs", "drafted"],
        ["2", "pairs", "not", "asked"],
        ["4", "questions", "drafted"],
    ]
    assert "\nSome requests failed or were not sent; run the same command again" in ran.out
    assert llm.server.count == 4
    ran = medtasks("curate", "draft", study, "--categories", "Pulmonary,Cardiac")
    following = f"Next: medtasks curate review {study}, then medtasks curate publish {study}"
    counts = ["11      categories  drafted", "6       pairs       drafted", "6       questions   drafted"]
    assert ran.out.splitlines()[1:] == [*counts, following]
    assert len(llm.asked("Here is")) == len(set(llm.asked("Here is"))) == 6
    assert len(llm.asked("Caption:")) == 11
    assert {draft.categories for draft in read_drafts(study).values()} == {(("Pulmonary",), ("Pulmonary",))}
    medtasks("curate", "draft", study, "--categories", "Pulmonary,Cardiac")
    medtasks("curate", "draft", study, "--no-categories")
    assert llm.server.count == 17
    assert "patient" not in ran.out + ran.err
    fails(["curate", "draft", study, "--no-categories", "--categories", "a,b"], "contradict each other")
    fails(["curate", "draft", study, "--categories", "Chest"], "names fewer than two")


def test_where_everything_fails_the_cause_is_one_sentence(fails, study, llm, monkeypatch):
    llm.server.choose = lambda body: llm.server.status(401)
    ran = fails(
        ["curate", "draft", study],
        "every request that was sent failed: the LLM at http://127.0.0.1",
        "(HTTP 401); check MEDTASKS_JUDGE_API_KEY; fix that and run the same command again",
    )
    assert "3       pairs  failed     the LLM" in ran.out
    assert "3       pairs  not asked" in ran.out
    assert llm.server.count < 6  # it gives up after three in a row
    fails(["curate", "draft", study, "--max-requests", 2], "(HTTP 401); check MEDTASKS_JUDGE_API_KEY; fix that")
    llm.server.choose = lambda body: llm.server.reply("Hello.")
    cause = "reply did not follow the format, and the limit of 2 requests is used up"
    ran = fails(["curate", "draft", study, "--max-requests", 2], f"every request that was sent failed: {cause}")
    assert f"1       pairs  failed     {cause}" in ran.out
    monkeypatch.delenv("MEDTASKS_JUDGE_MODEL")
    fails(["curate", "draft", study], "drafting needs an LLM and MEDTASKS_JUDGE_MODEL is not set")
    fails(["curate", "draft", study.parent], "holds no study (study.json is missing)")


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_asked_twice_after_a_run_that_was_stopped(medtasks, study, llm, tmp_path, by):
    answers = threading.Event()  # the fourth request is under way until then

    def choose(body):
        step, number = llm(body), llm.server.count
        return lambda handler: (number < 3 or answers.wait(), step(handler))

    llm.server.choose = choose
    log = tmp_path / "log"
    process = start_fresh(["medtasks", "curate", "draft", str(study), "--no-categories"], tmp_path, log)
    wait_until(lambda: llm.server.count == 4 and len(read_drafted(study)) == 3, process)
    process.send_signal(by)
    if by is signal.SIGINT:
        wait_until(lambda: "Finishing the requests that are under way" in log.read_text(), process)
        answers.set()
    process.wait(PATIENCE)
    answers.set()
    if by is signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted; what was finished is kept" in log.read_text()
    else:
        assert llm.server.count == 4
    llm.server.choose = llm
    assert medtasks("curate", "draft", study, "--no-categories").code == 0
    assert {line.outcome for line in read_drafted(study).values()} == {DraftOutcome.DRAFTED}
    asked = Counter(llm.asked("Here is"))
    assert len(asked) == 6
    # The one under way at a kill has to be asked for again; after Ctrl-C its reply is waited for and kept.
    assert sum(asked.values()) - 6 == (by is signal.SIGKILL)


def test_failure_modes_of_a_study_are_written_a_hundred_pairs_at_a_time(medtasks, fails, tmp_path, llm):
    folder = tmp_path / "study"
    write_study(folder, 102)
    fails(["curate", "patterns", folder], "no pair of 'our_pairs' has a question")
    assert medtasks("curate", "draft", folder, "--no-categories").code == 0
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
