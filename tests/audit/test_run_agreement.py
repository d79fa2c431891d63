"""Agreement of replies, likelihoods and answers, counted by hand."""

import math

import pytest

from medtasks.audit.run_values import (
    Failures,
    Overlap,
    agreement,
    answer_agreement,
    likelihood_agreement,
    text_agreement,
)
from medtasks.families.family import Reply


def texts(*pairs):
    return {str(number): (Reply(text=a), Reply(text=b)) for number, (a, b) in enumerate(pairs)}


def likelihoods(*pairs, greedy=((True, False), (True, False))):
    first, second = greedy
    return {
        str(number): (Reply(losses=a, greedy=first), Reply(losses=b, greedy=second))
        for number, (a, b) in enumerate(pairs)
    }


def test_texts():
    found = text_agreement(
        texts(
            ("the lung is clear", "the lung is clear"),
            ("the  lung", "the lung\n"),
            ("the lung is clear", "the lungs are clear"),
            ("no", "yes"),
            ("no finding", "no finding in the left lung"),
        )
    )
    assert (found.samples, found.equal, found.equal_but_spaces) == (5, 1, 1)
    assert (found.first_is_beginning, found.second_is_beginning) == (1, 0)
    assert found.differing == ("3", "2", "4")  # after 0, 8 and 10 characters
    assert (found.characters["median"], found.characters["max"]) == (8, 10)
    assert (found.words["median"], found.words["max"]) == (1, 2)
    assert found.at_first_word == 1
    assert text_agreement(texts(("a", "a"))).characters is None
    assert text_agreement(likelihoods(((1.0,), (1.0,)))) is None


def test_likelihoods():
    found = likelihood_agreement(
        likelihoods(
            ((1.0, 2.0), (1.0, 2.0)),
            ((1.0, 1.25), (1.5, 1.25)),  # flips, at a lead of 0.25
            ((1.0, 3.0), (4.0, 3.0)),  # flips, at a lead of 2
            ((1.0, 1.0), (1.0, 1.5)),  # a tie is another choice than either option
            ((1.0, math.inf), (1.25, math.inf)),
            greedy=((True, False), (False, False)),
        )
    )
    assert (found.samples, found.equal, found.options, found.equal_choices) == (5, 1, 10, 2)
    assert [(flip.sample, flip.margin) for flip in found.flips] == [("2", 2.0), ("1", 0.25), ("3", 0.0)]
    # of nine options: 0, 0, 0.5, 0, 3, 0, 0, 0.5, 0.25, and one without a finite difference
    assert found.mean_signed == found.mean_absolute == pytest.approx(4.25 / 9)
    assert (found.absolute["median"], found.absolute["max"]) == (0, 3)
    assert (found.greedy_options, found.equal_greedy) == (10, 5)


def test_likelihoods_without_greedy_flags_or_of_other_options():
    assert likelihood_agreement({"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0, 2.0)))}).greedy_options == 0
    assert likelihood_agreement({"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0,)))}) is None
    assert likelihood_agreement(texts(("A", "B"))) is None


def test_answers_agree_only_where_one_run_has_one():
    values = [("A", "A"), ("B", "A"), (None, "B"), (None, None), (["A"], ["A"])]
    scores = {str(number): ({"value": a}, {"value": b}) for number, (a, b) in enumerate(values)}
    found = answer_agreement(scores)
    assert (found.samples, found.equal, found.neither) == (4, 2, 1)
    assert (found.only_first, found.only_second, found.differing) == (0, 1, ("1", "2"))
    assert answer_agreement({"1": ({"reason": "ok"}, {"reason": "ok"})}) is None


def test_failed_samples_are_counted_and_in_no_other_number():
    first = {name: Reply(text="A" if name in "ab" else None) for name in "abcd"}
    second = {name: Reply(text="A" if name in "abf" else None) for name in "abdef"}
    scores = {"robust": ({"a": {"value": "A"}}, {"a": {"value": "B"}, "b": {"value": "B"}})}
    found = agreement(first, second, 9, scores, str.upper)
    assert (found.overlap, found.failed) == (Overlap(3, 1, 2, 3), Failures(0, 0, 1))
    assert (found.texts.samples, found.texts.equal, found.likelihoods) == (2, 2, None)
    assert found.all_equal
    assert found.answers["robust"].samples == 1
    assert found.examples == ["A"]
