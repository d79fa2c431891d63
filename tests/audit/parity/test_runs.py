"""Verdicts on made-up pairs of runs whose difference is known."""

import json
import random

import pytest

from medtasks.audit.parity.runs import parity
from medtasks.audit.parity.verdict import Kind, Verdict, explanation, lacking
from medtasks.data.privacy import hidden_id
from medtasks.data.schema import CHOICE
from medtasks.data.store import load_documents
from medtasks.errors import RepliesError, UnknownName
from medtasks.runs.sources import Source

from ...made_up_runs import write_run
from ..report.own_tasks import publish_own, write_task
from .two_runs import compared, losses, own_tasks, shifted, write_replies


@pytest.fixture
def right(tmp_path):
    with own_tasks(tmp_path / "own") as letters:
        yield letters


@pytest.fixture
def jitter():
    chance = random.Random(3)
    return {row: chance.gauss(0, 0.01) for row in range(800)}


def wrong(letter):
    return {"A": "B", "B": "A"}[letter]


def test_equal_runs_are_identical_however_few(sample, tmp_path):
    runs = [write_run(tmp_path / name, ("mediconfusion", "mediconfusion_blind"), 0.7, 1) for name in ("a", "b")]
    found = parity(*map(Source, runs), 0.01)
    assert list(found.tasks) == ["mediconfusion", "mediconfusion_blind"]  # sanity variants, too
    assert found.verdict is Verdict.IDENTICAL
    one = found.tasks["mediconfusion"]
    assert (one.kind, one.texts.equal, one.compared, lacking(one)) == (Kind.NONE, 32, 32, "")
    assert explanation(one) == "Every reply is the same to the last byte."
    assert {answer.equal for answer in one.answers.values()} == {32}


def test_flips_at_near_ties_are_rounding_and_equivalent(right, jitter, tmp_path):
    first = losses(right)
    flipped = {100: -0.01, 201: 0.01, 302: 0.01, 403: -0.01}  # two to the right answer, two away from it
    for row in flipped:
        first[row] = (0.5, 0.505) if flipped[row] > 0 else (0.505, 0.5)
    found = compared(tmp_path, "likely", first, shifted(first, jitter | flipped))
    assert (found.verdict, found.kind) == (Verdict.EQUIVALENT, Kind.ROUNDING)
    assert {flip.sample for flip in found.likelihoods.flips} == set(found.examples) == set(map(str, flipped))
    assert found.likelihoods.near_ties == 4
    assert explanation(found) == "Rounding: small differences, to both sides."
    (metric,) = found.metrics
    assert (metric.paired.difference, metric.equivalence.shown) == (0, True)


def test_flips_at_wide_margins_are_not_rounding(right, jitter, tmp_path):
    first = losses(right)
    flipped = {row: 1.5 if right[row] == "A" else -1.5 for row in (10, 21)}
    found = compared(tmp_path, "likely", first, shifted(first, jitter | flipped))
    assert found.kind is Kind.SCATTERED
    assert (len(found.likelihoods.flips), found.likelihoods.near_ties) == (2, 0)
    assert "Look for prompts, images or weights" in explanation(found)


def test_a_shift_to_one_side_is_systematic_and_different(right, jitter, tmp_path):
    """All options lose, and every tenth answer flips to the wrong one."""
    first = losses(right, lead=0.4)
    second = [tuple(loss + 0.3 + jitter[row] for loss in one) for row, one in enumerate(first)]
    second = [one[::-1] if row % 10 == 0 else one for row, one in enumerate(second)]
    found = compared(tmp_path, "likely", first, second)
    assert (found.verdict, found.kind) == (Verdict.DIFFERENT, Kind.SYSTEMATIC)
    assert found.likelihoods.mean_signed == pytest.approx(0.3, abs=0.01)
    assert explanation(found).startswith("Systematic: likelihoods or scores move to one side. Look at chat template")
    (metric,) = found.metrics
    assert metric.paired.difference == pytest.approx(-0.1)
    assert metric.p_holm < 1e-6


def test_a_shift_of_texts_is_systematic_and_different(right, tmp_path):
    second = [wrong(letter) if row % 20 == 0 else letter for row, letter in enumerate(right)]
    found = compared(tmp_path, "letters", right, second)
    assert (found.verdict, found.kind) == (Verdict.DIFFERENT, Kind.SYSTEMATIC)
    assert found.texts.equal == found.answers["none"].equal == 760
    assert compared(tmp_path, "letters", right, second, margin=0.1).verdict is Verdict.EQUIVALENT


def test_too_few_samples_say_how_many_it_takes(right, tmp_path):
    second = [f"{letter}." for letter in right[:40]]
    found = compared(tmp_path, "letters", right[:40], second)
    assert found.verdict is Verdict.SAME_ANSWERS
    assert "All answers are equal, so that on these samples the scores are the same." in explanation(found)
    assert lacking(found).startswith("accuracy (none) has 40 values; equivalence takes about 2")
    assert compared(tmp_path, "letters", right, [f"{letter}." for letter in right]).verdict is Verdict.EQUIVALENT
    flipped = compared(tmp_path, "letters", right[:40], [wrong(right[0]), *right[1:40]])
    assert flipped.verdict is Verdict.NOT_ENOUGH


def test_failures_in_one_run_are_neither_equal_nor_different(right, tmp_path):
    second = [None if row < 40 else letter for row, letter in enumerate(right)]
    first = [None if row == 799 else letter for row, letter in enumerate(right)]
    second[799] = None
    found = compared(tmp_path, "letters", first, second)
    assert (found.failed.only_first, found.failed.only_second, found.failed.both) == (0, 40, 1)
    assert (found.texts.samples, found.texts.equal, found.compared) == (759, 759, 759)
    assert (found.verdict, found.kind) == (Verdict.NOT_ENOUGH, Kind.FAILURES)
    assert "(40 in B only, of 800 samples): they could move a score by more than the margin" in explanation(found)
    few = compared(tmp_path, "letters", right, [None, *right[1:]])
    assert (few.verdict, few.kind) == (Verdict.EQUIVALENT, Kind.FAILURES)
    by_likelihood = losses(right)
    found = compared(tmp_path, "likely", by_likelihood, [(float("nan"), 1.0)] * 40 + by_likelihood[40:])
    assert (found.failed.only_second, found.likelihoods.equal, found.kind) == (40, 760, Kind.FAILURES)


def test_what_texts_alone_tell(right, tmp_path):
    spaced = compared(tmp_path, "letters", right, [f"{letter}\n" for letter in right])
    assert (spaced.kind, spaced.texts.equal_but_spaces) == (Kind.SPACES, 800)
    long = [f"{letter}. This is why." for letter in right]
    cut = compared(tmp_path, "letters", long, [f"{letter}. This" for letter in right])
    assert cut.kind is Kind.ENDINGS
    assert cut.texts.second_is_beginning == 800
    assert "B mostly gives the beginning of the other run's reply" in explanation(cut)
    late = compared(tmp_path, "letters", long, [one.replace("why", "it") for one in long])
    assert (late.kind, late.texts.words.median) == (Kind.ROUNDING, 3)
    early = compared(tmp_path, "letters", long, [f"Answer: {letter}" for letter in right])
    assert early.kind is Kind.SCATTERED


REFUSED = [
    ({"versions": {"letters": 2}}, "asked different versions of the task (1 in A, 2 in B)"),
    ({"system_instruction": "Be brief."}, "the runs had different system instructions"),
    ({"configs": {"letters": {"metadata": {"data": {"fingerprint": "bbbb"}}}}}, "on different data (aaaa in A, bbbb"),
    ({"configs": {"letters": {"num_fewshot": 5}}}, "different numbers of few-shot examples (0 in A, 5 in B)"),
    ({"asked": "Image"}, "gave different prompts to 9 of 9 questions, such as 0"),
]


@pytest.mark.parametrize(("told", "sentence"), REFUSED)
def test_other_questions_are_refused(right, tmp_path, told, sentence):
    config = {"num_fewshot": 0, "metadata": {"data": {"fingerprint": "aaaa"}}}
    first = {"versions": {"letters": 1}, "configs": {"letters": config}} if "asked" not in told else {}
    a = write_replies(tmp_path / "a", "letters", right[:9], **first)
    b = write_replies(tmp_path / "b", "letters", right[:9], **told)
    with pytest.raises(RepliesError) as refused:
        parity(Source(a), Source(b), 0.01, task="letters")
    assert sentence in str(refused.value)
    assert "so that their numbers cannot be compared" in str(refused.value)


def test_a_refused_task_leaves_the_others(right, tmp_path):
    for name, asked in (("a", "Question"), ("b", "Image")):
        write_replies(tmp_path / name, "letters", right[:9], asked)
        write_replies(tmp_path / name, "likely", losses(right[:9]))
        write_replies(tmp_path / name, "foreign", right[:9])
    found = parity(Source(tmp_path / "a"), Source(tmp_path / "b"), 0.01)
    assert (list(found.tasks), list(found.not_compared)) == (["likely"], ["foreign", "letters"])
    assert "is no task of medtasks" in found.not_compared["foreign"]


def test_sampling_is_a_warning(right, tmp_path):
    settings = {"configs": {"letters": {"generation_kwargs": {"temperature": 0.7, "max_new_tokens": 4}}}}
    found = compared(tmp_path, "letters", right[:9], right[:9], **settings)
    assert [one.split(" (")[0] for one in found.warnings[:1]] == ["the runs drew replies with different settings"]
    assert "use temperature 0" in found.warnings[1]
    assert {one.name for one in found.differences} == {
        "generation setting temperature",
        "generation setting max_new_tokens",
    }


def test_marks_of_images_are_no_other_question(right, tmp_path):
    a = write_replies(tmp_path / "a", "letters", right[:9])
    b = write_replies(tmp_path / "b", "letters", right[:9], "<image>\nQuestion")
    found = parity(Source(a), Source(b), 0.01).tasks["letters"]
    assert found.warnings == ("9 prompts differ in white space or in the mark of an image",)
    assert found.verdict is Verdict.IDENTICAL


def test_runs_that_share_nothing(right, tmp_path):
    a = write_replies(tmp_path / "a", "letters", right[:9])
    b = write_replies(tmp_path / "b", "likely", losses(right[:9]))
    with pytest.raises(RepliesError, match="no task with a samples file in common"):
        parity(Source(a), Source(b), 0.01)
    c = write_replies(tmp_path / "c", "letters", [None] * 9)
    with pytest.raises(RepliesError, match="letters: A and B answered no document in common"):
        parity(Source(a), Source(c), 0.01)
    with pytest.raises(UnknownName, match="acuracy"):
        parity(Source(a), Source(a), 0.01, ["acuracy"], "letters")


def test_credentialed_data_show_no_id_and_no_text(tmp_path):
    rows = [{"question": "canary?", "options": ["canary red", "blue"], "answer": "A"}] * 4
    publish_own("secret", CHOICE, rows, access="credentialed")
    write_task("secret", "choice", {"robust": "robust_choice"})
    ids = [document["doc_id"] for document in load_documents("secret")]
    for name, reply in (("a", "A. canary red"), ("b", "B. blue")):
        lines = ({"doc_id": doc_id, "reply": reply} for doc_id in ids)
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = parity(Source(tmp_path / "a.jsonl"), Source(tmp_path / "b.jsonl"), 0.01, task="secret").tasks["secret"]
    hidden = {hidden_id("doc", doc_id) for doc_id in ids}
    assert set(found.examples) == set(found.texts.differing) == set(found.answers["robust"].differing) == hidden
    assert "canary" not in repr(found)
    assert found.warnings == ("the prompts are not recorded or withheld, so that they could not be compared",)
