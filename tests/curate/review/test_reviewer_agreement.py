import math

import pytest

from medtasks.curate.drafts import Draft
from medtasks.curate.review.reviews import Judgement, Review, agreements, unjudged
from medtasks.curate.study import StudyImage


def drafts(number):
    asked = {"question": "Which?", "options": ("a", "b"), "answers": ("A", "B")}
    return {f"p{n}": Draft(item_id=f"p{n}", images=(f"i{2 * n}", f"i{2 * n + 1}"), **asked) for n in range(number)}


def images(number, group=lambda n: None):
    return {f"i{n}": StudyImage(image_id=f"i{n}", file="", sha256="", text="", group=group(n)) for n in range(number)}


def review(name, known, judgements):
    """A reviewer who judged questions in their order, None for those that they did not."""
    pairs = zip(known.values(), judgements[::2], judgements[1::2], strict=True)
    items = {draft.item_id: unjudged(draft).model_copy(update={"judgements": two}) for draft, *two in pairs}
    return Review(study="s", reviewer=name, items=items)


def scored(name, known, scores):
    return review(name, known, [Judgement(score=score) for score in scores])


def by_what(*reviews, known, seen=None):
    results = agreements(reviews, known, seen or images(2 * len(known)))
    return {result.what: result for result in results}


def test_kappa_of_scores_is_weighted_by_squares_of_their_distance_and_that_of_what_passes_is_the_textbooks():
    known = drafts(2)
    found = by_what(scored("anna", known, [1, 2, 9, 10]), scored("bert", known, [2, 2, 9, 8]), known=known)["score"]
    # Observed squares are 1, 0, 0 and 4; by chance each score of one meets each of the other's.
    expected = sum((a - b) ** 2 for a in (1, 2, 9, 10) for b in (2, 2, 9, 8)) / 16
    assert found.kappa == pytest.approx(1 - 5 / 4 / expected)
    assert (found.questions, found.clusters, found.equal) == (4, 2, 0.5)
    assert found.low < found.kappa <= found.high <= 1
    known = drafts(25)
    said = [(7, 7)] * 20 + [(7, 3)] * 5 + [(3, 7)] * 10 + [(2, 2)] * 15
    anna, bert = (
        scored(name, known, scores) for name, scores in zip(("anna", "bert"), zip(*said, strict=True), strict=True)
    )
    found = by_what(anna, bert, known=known)["score >= 5"]
    assert (found.kappa, found.equal) == pytest.approx((0.4, 0.7))


def test_reviewers_who_always_say_the_same_are_named():
    known = drafts(3)
    for scores, kappa, constant in (
        ([7] * 6, math.nan, ("anna", "bert")),
        ([1, 4, 7, 7, 9, 10], 0, ("anna",)),
        ([8] * 6, 0, ("anna", "bert")),
    ):
        result = by_what(scored("anna", known, [7] * 6), scored("bert", known, scores), known=known)["score"]
        assert result.kappa == pytest.approx(kappa, nan_ok=True)
        assert result.constant == constant


def test_only_questions_of_which_both_said_something_count_for_each_aspect():
    known = drafts(2)
    met, missed = Judgement(relevance=True), Judgement(relevance=False)
    anna = review("anna", known, [met, missed, Judgement(score=3), Judgement()])
    bert = review("bert", known, [met, Judgement(), Judgement(score=4), Judgement(score=9)])
    found = by_what(anna, bert, known=known)
    assert {what: one.questions for what, one in found.items()} == {
        "score": 1, "score >= 5": 1, "correctness": 0, "relevance": 1, "language": 0
    }  # fmt: skip
    assert math.isnan(found["language"].equal)


def test_every_two_reviewers_are_compared_and_what_was_drafted_anew_is_not():
    known = drafts(3)
    three = [scored(name, known, [1, 5, 7, 9, 2, 8]) for name in ("anna", "bert", "cleo")]
    assert len({one.reviewers for one in agreements(three, known, images(6))}) == 3
    anew = {**known, "p0": known["p0"].model_copy(update={"question": "What?"})}
    assert by_what(*three[:2], known=anew)["score"].questions == 4
    assert agreements(three[:1], known, images(6)) == []
    assert by_what(*three[:2], known=known)["score"].clusters == 3
    one_patient = images(6, lambda number: "p" if number in (1, 2) else None)
    assert by_what(*three[:2], known=known, seen=one_patient)["score"].clusters == 2
