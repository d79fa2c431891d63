"""Verdicts on made-up pairs of runs whose difference is known."""

import json
import random
from types import SimpleNamespace

import pytest

from medtasks.audit.comparing import TaskVerdict, Verdict, compare_all, compare_task, overall, prompt_warnings
from medtasks.data.document_store import load_documents
from medtasks.data.privacy import hidden_id
from medtasks.data.schema import CHOICE
from medtasks.errors import RepliesError
from medtasks.runs.run import Source
from medtasks.tasks.task_files import task_file

from ..made_up_runs import write_run
from ..tables import each_row
from .report.own_tasks import publish_own, write_task
from .two_runs import compared, losses, own_tasks, shifted, write_replies

UNKNOWN = "the prompts are not recorded or withheld, so that they could not be compared"
SAME = "All answers are equal, so that on these samples the scores are the same."


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


def both(first, second):
    return {"A": Source(first), "B": Source(second)}


def test_equal_runs_are_identical_however_few(sample, tmp_path):
    runs = [write_run(tmp_path / name, ("mediconfusion", "mediconfusion_blind"), 0.7, 1) for name in ("a", "b")]
    tasks, _ = compare_all(both(*runs), margin=0.01)
    assert list(tasks) == ["mediconfusion", "mediconfusion_blind"]  # sanity variants, too
    found = TaskVerdict(tasks["mediconfusion"], 0.01)
    assert (found.verdict, found.lacking) == (Verdict.IDENTICAL, "")
    assert found.explanation == "Every reply is the same to the last byte."
    assert {answer.equal for answer in found.agreement.answers.values()} == {found.agreement.texts.equal} == {32}
    assert overall([Verdict.IDENTICAL, Verdict.SAME_ANSWERS, Verdict.EQUIVALENT]) is Verdict.SAME_ANSWERS
    assert overall([Verdict.DIFFERENT, Verdict.NOT_ENOUGH]) is Verdict.DIFFERENT


def test_flips_at_near_ties_are_equivalent(right, jitter, tmp_path):
    first = losses(right)
    flipped = {100: -0.01, 201: 0.01, 302: 0.01, 403: -0.01}  # two to the right answer, two away from it
    for row in flipped:
        first[row] = (0.5, 0.505) if flipped[row] > 0 else (0.505, 0.5)
    found = compared(tmp_path, "likely", first, shifted(first, jitter | flipped))
    assert (found.verdict, found.explanation) == (Verdict.EQUIVALENT, "")
    flips = found.agreement.likelihoods.flips
    assert {flip.sample for flip in flips} == set(found.agreement.examples) == set(map(str, flipped))
    (test,) = found.task.comparisons
    assert (test.result.difference, test.equivalence.shown) == (0, True)


def test_a_shift_to_one_side_is_different(right, jitter, tmp_path):
    """All options lose, and every tenth answer flips to the wrong one."""
    first = losses(right, lead=0.4)
    second = [tuple(loss + 0.3 + jitter[row] for loss in one) for row, one in enumerate(first)]
    second = [one[::-1] if row % 10 == 0 else one for row, one in enumerate(second)]
    found = compared(tmp_path, "likely", first, second)
    assert found.verdict is Verdict.DIFFERENT
    assert found.agreement.likelihoods.mean_signed == pytest.approx(0.3, abs=0.01)
    (test,) = found.task.comparisons
    assert test.result.difference == pytest.approx(-0.1)
    assert test.holm < 1e-6


def test_a_significant_difference_within_the_margin_is_equivalent(right, tmp_path):
    second = [wrong(letter) if row % 20 == 0 else letter for row, letter in enumerate(right)]
    found = compared(tmp_path, "letters", right, second)
    assert found.verdict is Verdict.DIFFERENT
    assert found.agreement.texts.equal == found.agreement.answers["none"].equal == 760
    assert compared(tmp_path, "letters", right, second, margin=0.1).verdict is Verdict.EQUIVALENT


def test_too_few_samples_say_how_many_it_takes(right, tmp_path):
    second = [f"{letter}." for letter in right[:40]]
    found = compared(tmp_path, "letters", right[:40], second)
    assert (found.verdict, found.explanation) == (Verdict.SAME_ANSWERS, SAME)
    assert found.lacking.startswith("accuracy (none) has 40 values; equivalence takes about 2")
    assert compared(tmp_path, "letters", right, [f"{letter}." for letter in right]).verdict is Verdict.EQUIVALENT
    flipped = compared(tmp_path, "letters", right[:40], [wrong(right[0]), *right[1:40]])
    assert (flipped.verdict, flipped.explanation) == (Verdict.NOT_ENOUGH, "")


def test_failures_in_one_run_are_neither_equal_nor_different(right, tmp_path):
    second = [None if row < 40 else letter for row, letter in enumerate(right)]
    first = [None if row == 799 else letter for row, letter in enumerate(right)]
    second[799] = None
    found = compared(tmp_path, "letters", first, second)
    failed, texts = found.agreement.failed, found.agreement.texts
    assert (failed.only_first, failed.only_second, failed.both) == (0, 40, 1)
    assert (texts.samples, texts.equal, found.agreement.all_equal) == (759, 759, True)
    assert (found.verdict, found.lacking) == (Verdict.NOT_ENOUGH, "")
    assert "(40 in B only, of 800 samples): they could move a score by more than the margin" in found.explanation
    few = compared(tmp_path, "letters", right, [None, *right[1:]])
    assert few.verdict is Verdict.EQUIVALENT
    assert few.explanation.endswith("(1 in B only, of 800 samples): too few to move a score by the margin.")
    by_likelihood = losses(right)
    found = compared(tmp_path, "likely", by_likelihood, [(float("nan"), 1.0)] * 40 + by_likelihood[40:])
    assert (found.agreement.failed.only_second, found.agreement.likelihoods.equal) == (40, 760)


def test_texts_that_differ_with_equal_answers(right, tmp_path):
    spaced = compared(tmp_path, "letters", right, [f"{letter}\n" for letter in right])
    assert (spaced.explanation, spaced.agreement.texts.equal_but_spaces) == (SAME, 800)
    long = [f"{letter}. This is why." for letter in right]
    cut = compared(tmp_path, "letters", long, [f"{letter}. This" for letter in right])
    assert (cut.explanation, cut.agreement.texts.second_is_beginning) == (SAME, 800)


REFUSED = [
    ({"versions": {"letters": 2}}, "asked different versions of the task (1 in A, 2 in B)"),
    ({"system_instruction": "Be brief."}, "the runs had different system instructions"),
    ({"configs": {"letters": {"metadata": {"data": {"fingerprint": "bbbb"}}}}}, "on different data (aaaa in A, bbbb"),
    ({"configs": {"letters": {"num_fewshot": 5}}}, "different numbers of few-shot examples (0 in A, 5 in B)"),
    ({"asked": "Image"}, "gave different prompts to 9 of 9 questions, such as 0"),
]


@each_row("told, sentence", REFUSED)
def test_other_questions_are_refused(right, tmp_path, told, sentence):
    config = {"num_fewshot": 0, "metadata": {"data": {"fingerprint": "aaaa"}}}
    first = {"versions": {"letters": 1}, "configs": {"letters": config}} if "asked" not in told else {}
    a = write_replies(tmp_path / "a", "letters", right[:9], **first)
    b = write_replies(tmp_path / "b", "letters", right[:9], **told)
    with pytest.raises(RepliesError) as refused:
        compare_task(task_file("letters"), both(a, b), margin=0.01)
    assert sentence in str(refused.value)
    assert "so that their numbers cannot be compared" in str(refused.value)


def test_a_refused_task_leaves_the_others(right, tmp_path):
    for name, asked in (("a", "Question"), ("b", "Image")):
        write_replies(tmp_path / name, "letters", right[:9], asked)
        write_replies(tmp_path / name, "likely", losses(right[:9]))
        write_replies(tmp_path / name, "foreign", right[:9])
    tasks, causes = compare_all(both(tmp_path / "a", tmp_path / "b"), margin=0.01)
    assert (list(tasks), list(causes)) == (["likely"], ["foreign", "letters"])
    tasks, _ = compare_all(both(tmp_path / "a", tmp_path / "b"))  # a comparison of models takes other prompts
    assert list(tasks) == ["letters", "likely"]


def test_marks_of_images_are_no_other_question(right, tmp_path):
    a = write_replies(tmp_path / "a", "letters", right[:9])
    b = write_replies(tmp_path / "b", "letters", right[:9], "<image>\nQuestion")
    found = compare_task(task_file("letters"), both(a, b), margin=0.01)
    assert found.warnings == ("9 prompts differ in white space or in the mark of an image",)
    assert TaskVerdict(found, 0.01).verdict is Verdict.IDENTICAL


def test_credentialed_data_show_no_id_and_no_text(tmp_path):
    rows = [{"question": "canary?", "options": ["canary red", "blue"], "answer": "A"}] * 4
    publish_own("secret", CHOICE, rows, access="credentialed")
    write_task("secret", "choice", {"robust": "robust_choice"})
    ids = [document["doc_id"] for document in load_documents("secret")]
    for name, reply in (("a", "A. canary red"), ("b", "B. blue")):
        lines = ({"doc_id": doc_id, "reply": reply} for doc_id in ids)
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = compare_task(task_file("secret"), both(tmp_path / "a.jsonl", tmp_path / "b.jsonl"), margin=0.01)
    (agreement,) = found.agreements.values()
    hidden = {hidden_id("doc", doc_id) for doc_id in ids}
    assert set(agreement.examples) == set(agreement.texts.differing) == set(agreement.answers["robust"].differing)
    assert set(agreement.examples) == hidden
    assert "canary" not in repr(found)
    assert found.warnings == ("the prompts are not recorded or withheld, so that they could not be compared",)


@pytest.fixture
def without_prompts(tmp_path):
    """Write a run without prompts whose task had some configuration; return its samples file."""

    def write(name, config):
        (tmp_path / name).mkdir()
        (tmp_path / name / "20260102_030405_results.json").write_text(
            json.dumps({"results": {}, "configs": {"letters": config}})
        )
        samples = tmp_path / name / "20260102_030405_samples_letters.jsonl"
        samples.write_text("")
        return samples

    return write


def test_templates_and_sampling_count_where_no_prompt_is_recorded(without_prompts):
    task = SimpleNamespace(name="letters", compares_likelihoods=True)
    first, second, unknown = (
        without_prompts(name, {"lmms_eval_specific_kwargs": {"default": {"template": template}}} if template else {})
        for name, template in (("a", "{{ question }}?"), ("b", "{{ question }}\nAnswer:"), ("c", None))
    )
    assert prompt_warnings(task, [], [first, first]) == prompt_warnings(task, [], [first, unknown]) == (UNKNOWN,)
    with pytest.raises(RepliesError, match="the runs made their prompts from different templates"):
        prompt_warnings(task, [], [first, second])
    drawn = {"generation_kwargs": {"temperature": "0.7", "max_new_tokens": 4}}
    files = [without_prompts("d", {}), without_prompts("e", drawn)]
    unknown, settings, drawn = prompt_warnings(SimpleNamespace(name="letters", compares_likelihoods=False), [], files)
    assert unknown == UNKNOWN
    assert settings.endswith("(generation setting temperature, generation setting max_new_tokens)")
    assert drawn.endswith("use temperature 0")
    assert prompt_warnings(task, [], files) == (UNKNOWN,)
