"""Acceptance of drafts for publication, in the words of their reviewers, with as many yes as no.

MedHEval asks its LLM for "an equal number of 'yes' and 'no' answers" (figures 8 and 10); of what it released 41% to 54%
are yes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from medtasks.curate.drafts import Draft
from medtasks.curate.review.reviews import ItemReview, Review, current, problems, settled
from medtasks.data.sources.medheval_gold import YES_NO
from medtasks.net.journal import digest_of

UNSCORED, TOO_LOW, DISAGREED = "not scored by any reviewer", "scored too low", "reviewers differ in the wording"


def accepted(
    drafts: Mapping[str, Draft], reviews: Sequence[Review], min_score: int, wording: str | None = None
) -> tuple[dict[str, Draft], Counter[str]]:
    """Return the accepted drafts in the words of their reviewers, by item id, and how many others by reason.

    A draft is accepted if a reviewer scored all its questions and none gave any of them less than ``min_score``.
    ``wording`` is the reviewer whose words count where they differ.
    """
    said = {review.reviewer: current(review, drafts) for review in reviews}
    kept: dict[str, Draft] = {}
    left_out: Counter[str] = Counter()
    for item, draft in drafts.items():
        outcome = _judged(draft, {who: items[item] for who, items in said.items() if item in items}, min_score, wording)
        if isinstance(outcome, Draft):
            kept[item] = outcome
        else:
            left_out[outcome] += 1
    return kept, left_out


def _judged(draft: Draft, seen: Mapping[str, ItemReview], min_score: int, wording: str | None) -> Draft | str:
    """Return a draft in the words of its reviewers, or the reason why it is left out.

    Categories are those that any reviewer gave, or the draft's if none did.
    """
    scored = {who: review for who, review in seen.items() if review.scores}
    if not scored:
        return UNSCORED
    if causes := dict.fromkeys(why for review in scored.values() for why in problems(draft, review).values()):
        return f"unusable after review: {'; '.join(causes)}"
    judgements = [
        one for review in seen.values() if len(review.judgements) == len(draft.images) for one in review.judgements
    ]
    if min(one.score for one in judgements if one.score is not None) < min_score:
        return TOO_LOW
    deciding = [scored[wording]] if wording is not None and wording in scored else list(scored.values())
    first, *others = [
        {
            "question": review.question,
            "options": review.options,
            "answers": review.answers,
            "hallucination": review.hallucination or draft.hallucination,
        }
        for review in (settled(draft, one) for one in deciding)
    ]
    if any(other != first for other in others):
        return DISAGREED
    areas = [review.categories for review in deciding if any(review.categories)] or [draft.categories]
    of_images = [[area for named in each for area in named] for each in zip(*areas, strict=True)]
    categories = tuple(tuple(dict.fromkeys(of_image)) for of_image in of_images)
    worded = draft.model_copy(update={**first, "categories": categories})
    if len(worded.images) > 1 and len(set(worded.answers)) == 1:
        return "unusable after review: both images have the same answer"
    return worded


def balanced(drafts: Mapping[str, Draft]) -> tuple[set[str], Counter[str]]:
    """Return the ids of the drafts to keep so that yes is the answer as often as no, and how many others by reason.

    Of the more frequent answer, the smallest digests of ids are kept: rewording a question changes nothing, and one
    more draft changes at most one other. Questions without yes and no stay.
    """
    answers = {item: draft.options[ord(draft.answers[0]) - ord("A")] for item, draft in yes_no(drafts.items())}
    by_answer = {word: [item for item, answer in answers.items() if answer == word] for word in YES_NO}
    size = min(map(len, by_answer.values()))
    kept = {item for items in by_answer.values() for item in sorted(items, key=digest_of)[:size]}
    left_out = Counter({f"surplus of {word.lower()}": len(items) - size for word, items in by_answer.items()})
    return kept | (drafts.keys() - answers.keys()), +left_out


def yes_no(drafts: Iterable[tuple[str, Draft]]) -> list[tuple[str, Draft]]:
    """Return those that are answered by yes or no, whichever option comes first."""
    return [(item, draft) for item, draft in drafts if sorted(draft.options) == sorted(YES_NO)]
