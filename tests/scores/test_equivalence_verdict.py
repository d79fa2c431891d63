"""Verdicts on made-up pairs of runs whose difference is known."""

import json
import random
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.privacy import hidden_id
from medtasks.data.schema import CHOICE
from medtasks.errors import RepliesError
from medtasks.runs.run import Source
from medtasks.scores.comparing import compare_all, compare_task
from medtasks.scores.comparison_checks import prompt_warnings
from medtasks.scores.verdicts import NonInferiority, Verdict, verdict_on
from medtasks.stats.equivalence import MARGIN, tango_statistic
from medtasks.tasks.task_files import task_file

from ..made_up_runs import write_run
from ..report.harness_output import publish_own, write_task
from ..tables import each_row
from .two_runs import losses, own_tasks, write_replies

UNKNOWN = "the prompts are not recorded or withheld, so that they could not be compared"
SAME = "All answers are equal, so that on these samples the scores are the same."
WRONG = {"A": "B", "B": "A"}


@pytest.fixture
def right(tmp_path):
    with own_tasks(tmp_path / "own") as letters:
        yield letters


@pytest.fixture
def compared(tmp_path):
    def compare(task, first, second, margin=MARGIN):
        sources = both(
            write_replies(tmp_path / "a", task, first),
            write_replies(tmp_path / "b", task, second),
        )
        by_task, _ = compare_all(sources, margin=margin)
        return SimpleNamespace(
            tests=by_task[task].comparisons, **vars(verdict_on(by_task[task], margin))
        )

    return compare


def both(first, second):
    return {"A": Source(first), "B": Source(second)}


def test_equal_runs_are_identical_however_few(sample, tmp_path):
    runs = [
        write_run(tmp_path / name, ("mediconfusion", "mediconfusion_blind"), 0.7, 1)
        for name in ("a", "b")
    ]
    tasks, _ = compare_all(both(*runs), margin=0.01)
    assert list(tasks) == ["mediconfusion", "mediconfusion_blind"]  # sanity variants, too
    verdict = verdict_on(tasks["mediconfusion"], 0.01)
    assert (verdict.verdict, verdict.lacking) == (Verdict.IDENTICAL, "")
    assert verdict.explanation == "Every reply is the same to the last byte."
    assert (
        {answer.equal for answer in verdict.agreement.answers.values()}
        == {verdict.agreement.texts.equal}
        == {32}
    )


def jitter():
    """Small random change of the loss of each row."""
    chance = random.Random(3)
    return {row: chance.gauss(0, 0.01) for row in range(800)}


def test_flips_at_near_ties_are_equivalent(right, compared):
    first = losses(right)
    # Two flip to the right answer, two away from it.
    flipped = {100: -0.01, 201: 0.01, 302: 0.01, 403: -0.01}
    for row in flipped:
        first[row] = (0.5, 0.505) if flipped[row] > 0 else (0.505, 0.5)
    shifts = jitter() | flipped
    second = [(loss + shifts[row], *others) for row, (loss, *others) in enumerate(first)]

    verdict = compared("likely", first, second)

    assert (verdict.verdict, verdict.explanation) == (Verdict.EQUIVALENT, "")
    flips = verdict.agreement.likelihoods.flips
    assert (
        {flip.sample for flip in flips}
        == set(verdict.agreement.examples)
        == set(map(str, flipped))
    )
    (test,) = verdict.tests
    assert (test.result.difference, test.equivalence.is_equivalent) == (0, True)


def test_a_shift_to_one_side_is_different(right, compared):
    """All options lose, and every tenth answer flips to the wrong one."""
    first = losses(right, lead=0.4)
    change = jitter()
    second = [
        tuple(loss + 0.3 + change[row] for loss in options) for row, options in enumerate(first)
    ]
    second = [options[::-1] if row % 10 == 0 else options for row, options in enumerate(second)]

    verdict = compared("likely", first, second)

    assert verdict.verdict is Verdict.DIFFERENT
    assert verdict.agreement.likelihoods.mean_signed == pytest.approx(0.3, abs=0.01)
    (test,) = verdict.tests
    assert test.result.difference == pytest.approx(-0.1)
    assert test.holm < 1e-6


def test_a_significant_difference_is_equivalent_within_a_wider_margin(right, compared):
    second = [WRONG[letter] if row % 20 == 0 else letter for row, letter in enumerate(right)]

    verdict = compared("letters", right, second)

    assert verdict.verdict is Verdict.DIFFERENT
    assert verdict.agreement.texts.equal == verdict.agreement.answers["none"].equal == 760
    assert compared("letters", right, second, margin=0.1).verdict is Verdict.EQUIVALENT


def test_few_samples_with_the_same_answers_are_not_called_equivalent(right, compared):
    few = compared("letters", right[:40], [f"{letter}." for letter in right[:40]])

    assert (few.verdict, few.explanation) == (Verdict.SAME_ANSWERS, SAME)
    assert few.lacking.startswith("accuracy (none) has 40 values; equivalence takes about 2")
    assert (
        compared("letters", right, [f"{letter}." for letter in right]).verdict
        is Verdict.EQUIVALENT
    )


def test_few_samples_with_one_flip_are_not_enough(right, compared):
    flipped = compared("letters", right[:40], [WRONG[right[0]], *right[1:40]])
    assert (flipped.verdict, flipped.explanation) == (Verdict.NOT_ENOUGH, "")


def test_white_space_changes_no_answer(right, compared):
    spaced = compared("letters", right, [f"{letter}\n" for letter in right])
    assert (spaced.explanation, spaced.agreement.texts.equal_but_spaces) == (SAME, 800)


def test_many_failures_in_one_run_leave_the_verdict_open(right, compared):
    second = [None if row in (*range(40), 799) else letter for row, letter in enumerate(right)]

    verdict = compared("letters", [*right[:799], None], second)

    failed, texts = verdict.agreement.failed, verdict.agreement.texts
    assert (failed.only_first, failed.only_second, failed.both) == (0, 40, 1)
    assert (texts.samples, texts.equal, verdict.agreement.all_equal) == (759, 759, True)
    assert (verdict.verdict, verdict.lacking) == (Verdict.NOT_ENOUGH, "")
    assert (
        "(40 in B only, of 800 samples): they could move a score by more than the margin"
        in verdict.explanation
    )


def test_few_failures_in_one_run_do_not_matter(right, compared):
    few = compared("letters", right, [None, *right[1:]])

    assert few.verdict is Verdict.EQUIVALENT
    assert few.explanation.endswith(
        "(1 in B only, of 800 samples): too few to move a score by the margin."
    )


def test_as_many_failures_as_the_margin_do_not_matter(right, compared):
    # 0.29 * 100 is 28.999999999999996 in floating point.
    few = compared("letters", right[:100], [None] * 29 + right[29:100], margin=0.29)

    assert few.explanation.endswith(
        "(29 in B only, of 100 samples): too few to move a score by the margin."
    )


def test_likelihoods_that_are_no_numbers_count_as_failed(right, compared):
    by_likelihood = losses(right)
    verdict = compared("likely", by_likelihood, [(float("nan"), 1.0)] * 40 + by_likelihood[40:])
    assert (verdict.agreement.failed.only_second, verdict.agreement.likelihoods.equal) == (
        40,
        760,
    )


@pytest.fixture
def non_inferiority(right, tmp_path):
    """Verdict on a run that lost and gained so many right answers, and the test that decided."""

    def verdicts(lost, gained=0, margin=0.02, asked=800, higher_is_better=True):
        first = [
            WRONG[letter] if row >= asked - gained else letter
            for row, letter in enumerate(right[:asked])
        ]
        second = [
            WRONG[letter] if row < lost else letter for row, letter in enumerate(right[:asked])
        ]
        runs = both(
            write_replies(tmp_path / "a", "letters", first),
            write_replies(tmp_path / "b", "letters", second),
        )
        task = compare_task(task_file("letters"), runs, margin=margin)
        (test,) = task.comparisons
        verdict = verdict_on(
            replace(task, comparisons=[replace(test, higher_is_better=higher_is_better)]),
            margin,
        )
        return verdict.non_inferiority, verdict.deciding

    return verdicts


def test_not_worse_needs_as_many_samples_as_tangos_test(non_inferiority):
    for lost, gained, margin in [
        (0, 0, 0.001),
        (8, 8, 0.02),
        (8, 0, 0.02),
        (8, 0, 0.015),
        (4, 2, 0.02),
        (20, 8, 0.02),
    ]:
        shown = tango_statistic(gained, lost, 800, -margin) > 1.6449 or not lost
        assert (
            non_inferiority(lost, gained, margin)[0] is NonInferiority.NOT_WORSE
        ) == shown, (
            lost,
            gained,
            margin,
        )


def test_a_much_better_run_is_not_worse(non_inferiority):
    assert non_inferiority(0, 400) == (NonInferiority.NOT_WORSE, None)


def test_a_run_that_lost_many_answers_is_worse(non_inferiority):
    assert non_inferiority(100)[0] is NonInferiority.WORSE


def test_few_samples_are_not_enough_even_if_better(non_inferiority):
    assert non_inferiority(4, 8, asked=40)[0] is NonInferiority.NOT_ENOUGH


def test_higher_is_worse_where_lower_is_better(non_inferiority):
    verdict, test = non_inferiority(0, 400, higher_is_better=False)

    assert (verdict, test.result.difference) == (NonInferiority.WORSE, 0.5)
    assert non_inferiority(400, higher_is_better=False)[0] is NonInferiority.NOT_WORSE


def test_any_change_is_worse_where_no_direction_is_known(non_inferiority):
    assert non_inferiority(0, 400, higher_is_better=None)[0] is NonInferiority.WORSE


def test_failures_in_one_run_pass_only_within_the_margin(right, tmp_path):
    second = [None if row < 40 else letter for row, letter in enumerate(right)]
    runs = both(
        write_replies(tmp_path / "a", "letters", right),
        write_replies(tmp_path / "b", "letters", second),
    )
    for margin, wanted in ((0.01, NonInferiority.NOT_ENOUGH), (0.06, NonInferiority.NOT_WORSE)):
        verdict = verdict_on(compare_task(task_file("letters"), runs, margin=margin), margin)
        assert (verdict.non_inferiority, verdict.deciding) == (wanted, None)


@contextmanager
def refused(sentence):
    with pytest.raises(RepliesError) as error:
        yield
    assert sentence in str(error.value)
    assert "so that their numbers cannot be compared" in str(error.value)


@each_row(
    "second, sentence",
    [
        ({"versions": {"letters": 2}}, "asked different versions of the task (1 in A, 2 in B)"),
        ({"system_instruction": "Be brief."}, "the runs had different system instructions"),
        (
            {"configs": {"letters": {"metadata": {"data": {"fingerprint": "b"}}}}},
            "on different data (a in A, b in B",
        ),
        (
            {"configs": {"letters": {"num_fewshot": 5}}},
            "different numbers of few-shot examples (0 in A, 5 in B)",
        ),
        ({"asked": "Image"}, "gave different prompts to 9 of 9 questions, such as 0"),
    ],
)
def test_other_questions_are_refused(right, tmp_path, second, sentence):
    config = {"num_fewshot": 0, "metadata": {"data": {"fingerprint": "a"}}}
    first = (
        {"versions": {"letters": 1}, "configs": {"letters": config}}
        if "asked" not in second
        else {}
    )
    a = write_replies(tmp_path / "a", "letters", right[:9], **first)
    b = write_replies(tmp_path / "b", "letters", right[:9], **second)
    if "asked" in second:  # as models may be, without a margin
        assert list(compare_all(both(a, b))[0]) == ["letters"]
    with refused(sentence):
        compare_task(task_file("letters"), both(a, b), margin=0.01)


def test_marks_of_images_are_no_other_question(right, tmp_path):
    for name, prompt in (("a", "Question"), ("marked", "<image>\nQuestion")):
        write_replies(tmp_path / name, "letters", right[:9], prompt)
    task = compare_task(
        task_file("letters"), both(tmp_path / "a", tmp_path / "marked"), margin=0.01
    )
    assert task.warnings == ["9 prompts differ in white space or in the mark of an image"]
    assert verdict_on(task, 0.01).verdict is Verdict.IDENTICAL


def test_credentialed_data_show_only_hashed_ids(tmp_path):
    rows = [{"question": "canary?", "options": ["canary red", "blue"], "answer": "A"}] * 4
    publish_own("secret", CHOICE, rows, access="credentialed")
    write_task("secret", "choice", {"robust": "robust_choice"})
    ids = [document["doc_id"] for document in load_documents("secret")]
    for name, reply in (("a", "A. canary red"), ("b", "B. blue")):
        lines = ({"doc_id": doc_id, "reply": reply} for doc_id in ids)
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines)
        )
    task = compare_task(
        task_file("secret"), both(tmp_path / "a.jsonl", tmp_path / "b.jsonl"), margin=0.01
    )
    (agreement,) = task.agreements.values()
    hidden = {hidden_id("doc", doc_id) for doc_id in ids}
    differing = (
        agreement.examples,
        agreement.texts.differing,
        agreement.answers["robust"].differing,
    )
    assert [set(samples) for samples in differing] == [hidden] * 3
    assert "canary" not in repr(task)
    assert task.warnings == [UNKNOWN]


@pytest.fixture
def samples_without_prompts(tmp_path):
    """Sample files of four runs: of two templates, with and without drawn replies."""

    def run(name, **config):
        folder = write_replies(tmp_path / name, "letters", [], configs={"letters": config})
        return next(folder.glob("*_samples_letters.jsonl"))

    first, second = (
        run(
            name,
            lmms_eval_specific_kwargs={"default": {"template": f"{{{{ question }}}}{name}"}},
        )
        for name in "ab"
    )
    plain = run("c")
    drawn = run("d", generation_kwargs={"temperature": "0.7", "max_new_tokens": 4})
    return first, second, plain, drawn


def test_prompts_that_no_run_recorded_are_said_to_be_unknown(samples_without_prompts):
    task = SimpleNamespace(name="letters", compares_likelihoods=True)
    first, _, plain, drawn = samples_without_prompts

    for files in ((first, first), (first, plain), (plain, drawn)):
        assert prompt_warnings(task, [], files) == (UNKNOWN,)


def test_other_templates_are_refused(samples_without_prompts):
    task = SimpleNamespace(name="letters", compares_likelihoods=True)
    first, second, _, _ = samples_without_prompts

    with refused("the runs made their prompts from different templates"):
        prompt_warnings(task, [], [first, second])


def test_other_generation_settings_are_warned_of(samples_without_prompts):
    _, _, plain, drawn = samples_without_prompts
    task = SimpleNamespace(name="letters", compares_likelihoods=False)
    unknown, settings, random_replies = prompt_warnings(task, [], [plain, drawn])

    assert unknown == UNKNOWN
    assert settings.endswith(
        "(generation setting temperature, generation setting max_new_tokens)"
    )
    assert random_replies.endswith("use temperature 0")
