"""Which drafts of a study become questions of its benchmark, and in which words: what its reviewers let through."""

from collections import Counter
from collections.abc import Mapping, Sequence

from medtasks.curate.drafts import Draft
from medtasks.curate.judging import problems, settled
from medtasks.curate.reviews import ItemReview, Review, current, lowest_scores

UNSCORED, TOO_LOW, DISAGREED = "not scored by any reviewer", "scored too low", "reviewers differ in the wording"
_SAME_ANSWER = "unusable after review: both images have the same answer"


def accepted(
    drafts: Mapping[str, Draft], reviews: Sequence[Review], min_score: int, wording: str | None = None
) -> tuple[dict[str, Draft], Counter[str]]:
    """Return drafts in the words of their reviewers, by item id in order, and how many were left out for what.

    A draft is let through when somebody scored all its questions, and nobody gave any of them less than ``min_score``.
    ``wording`` is the reviewer whose words count where they differ.
    """
    said = {review.reviewer: current(review, drafts) for review in reviews}
    kept: dict[str, Draft] = {}
    left_out: Counter[str] = Counter()
    for item, draft in drafts.items():
        seen = [items[item] for items in said.values() if item in items]
        scored = {who: items[item] for who, items in said.items() if item in items and items[item].scores}
        cause = _cause(draft, list(scored.values()), seen, min_score)
        worded = None if cause else _worded(draft, scored, wording)
        if cause:
            left_out[cause] += 1
        elif worded is None:
            left_out[DISAGREED] += 1
        elif len(worded.images) > 1 and len(set(worded.answers)) == 1:
            left_out[_SAME_ANSWER] += 1
        else:
            kept[item] = worded
    return kept, left_out


def _cause(draft: Draft, scored: Sequence[ItemReview], seen: Sequence[ItemReview], min_score: int) -> str:
    """Return why a draft is left out whatever the wording; an empty text where it is not."""
    if not scored:
        return UNSCORED
    if found := dict.fromkeys(why for one in scored for why in problems(draft, one).values()):
        return f"unusable after review: {'; '.join(found)}"
    lowest = lowest_scores([one for one in seen if len(one.judgements) == len(draft.images)])
    return TOO_LOW if lowest is None or min(lowest) < min_score else ""


def _worded(draft: Draft, scored: Mapping[str, ItemReview], wording: str | None) -> Draft | None:
    """Return a draft in the words of its reviewers; None where they differ and nobody is named to decide.

    Categories are those that any of them gave, and where nobody gave any, the draft's.
    """
    deciding = [scored[wording]] if wording is not None and wording in scored else list(scored.values())
    first, *others = [_changes(draft, settled(draft, one)) for one in deciding]
    if any(other != first for other in others):
        return None
    areas = [one.categories for one in deciding if any(one.categories)] or [draft.categories]
    of_images = [[area for named in each for area in named] for each in zip(*areas, strict=True)]
    categories = tuple(tuple(dict.fromkeys(of_image)) for of_image in of_images)
    return draft.model_copy(update={**first, "categories": categories})


def _changes(draft: Draft, said: ItemReview) -> dict[str, object]:
    about = {"hallucination": said.hallucination or draft.hallucination}
    return {"question": said.question, "options": said.options, "answers": said.answers, **about}
