"""Agreement of replies, likelihoods and answers, counted by hand."""

import math

import pytest

from medtasks.audit.run_values import Failures, Overlap, agreement, likelihood_agreement, text_agreement
from medtasks.data.privacy import hidden_id
from medtasks.families.family import Reply


def test_texts_and_likelihoods():
    def texts(*pairs):
        return {str(number): (Reply(text=a), Reply(text=b)) for number, (a, b) in enumerate(pairs)}

    agreed = text_agreement(
        texts(
            ("the lung is clear", "the lung is clear"),
            ("the  lung", "the lung\n"),
            ("the lung is clear", "the lungs are clear"),
            ("no", "yes"),
            ("no finding", "no finding in the left lung"),
        )
    )
    assert (agreed.samples, agreed.equal, agreed.equal_but_spaces) == (5, 1, 1)
    assert (agreed.first_is_beginning, agreed.second_is_beginning) == (1, 0)
    assert agreed.differing == ("3", "2", "4")  # after 0, 8 and 10 characters
    assert (agreed.characters["median"], agreed.characters["max"]) == (8, 10)
    assert (agreed.words["median"], agreed.words["max"]) == (1, 2)
    assert agreed.at_first_word == 1
    assert text_agreement(texts(("a", "a"))).characters is None
    assert likelihood_agreement(texts(("A", "B"))) is None
    pairs = [
        ((1.0, 2.0), (1.0, 2.0)),
        ((1.0, 1.25), (1.5, 1.25)),  # flips, at a lead of 0.25
        ((1.0, 3.0), (4.0, 3.0)),  # flips, at a lead of 2
        ((1.0, 1.0), (1.0, 1.5)),  # a tie is another choice than either option
        ((1.0, math.inf), (1.25, math.inf)),
    ]
    replies = {
        str(number): (Reply(losses=a, greedy=(True, False)), Reply(losses=b, greedy=(False, False)))
        for number, (a, b) in enumerate(pairs)
    }
    agreed = likelihood_agreement(replies)
    assert (agreed.samples, agreed.equal, agreed.options, agreed.equal_choices) == (5, 1, 10, 2)
    assert [(flip.sample, flip.margin) for flip in agreed.flips] == [("2", 2.0), ("1", 0.25), ("3", 0.0)]
    # of nine options: 0, 0, 0.5, 0, 3, 0, 0, 0.5, 0.25, and one without a finite difference
    assert agreed.mean_signed == agreed.mean_absolute == pytest.approx(4.25 / 9)
    assert (agreed.absolute["median"], agreed.absolute["max"]) == (0, 3)
    assert (agreed.greedy_options, agreed.equal_greedy) == (10, 5)
    assert text_agreement(replies) is None
    without_flags = {"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0, 2.0)))}
    assert likelihood_agreement(without_flags).greedy_options == 0
    assert likelihood_agreement({"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0,)))}) is None


def test_answers_agree_only_where_one_run_has_one_and_failed_samples_are_only_counted():
    values = [("A", "A"), ("B", "A"), (None, "B"), (None, None), (["A"], ["A"])]
    first, second = ({str(number): {"value": pair[run]} for number, pair in enumerate(values)} for run in (0, 1))
    without = {"1": {"reason": "ok"}}
    answers = agreement({}, {}, 5, {"robust": (first, second), "reports": (without, without)}).answers
    assert list(answers) == ["robust"]
    agreed = answers["robust"]
    assert (agreed.samples, agreed.equal, agreed.neither) == (4, 2, 1)
    assert (agreed.only_first, agreed.only_second, agreed.differing) == (0, 1, ("1", "2"))
    first = {name: Reply(text="A" if name in "ab" else None) for name in "abcd"}
    second = {name: Reply(text="A" if name in "abf" else None) for name in "abdef"}
    scores = {"robust": ({"a": {"value": "A"}}, {"a": {"value": "B"}, "b": {"value": "B"}})}
    agreed = agreement(first, second, 9, scores, hashed=True)
    assert (agreed.overlap, agreed.failed) == (Overlap(3, 1, 2, 3), Failures(0, 0, 1))
    assert (agreed.texts.samples, agreed.texts.equal, agreed.likelihoods, agreed.all_equal) == (2, 2, None, True)
    assert (agreed.answers["robust"].samples, agreed.examples) == (1, [hidden_id("doc", "a")])
