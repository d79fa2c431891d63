"""What a reviewer can say of a draft, what cannot be kept, and what should be looked at again."""

import string
from collections.abc import Iterator

from medtasks.curate.drafts import Draft
from medtasks.curate.pair_replies import PairReply, broken_rules
from medtasks.curate.reviews import ASPECTS, HIGHEST, LOWEST, ItemReview, Judgement

HALLUCINATIONS = ("anatomy", "measurement", "symptom", "technique")


def unjudged(draft: Draft) -> ItemReview:
    """Return the review of a draft of which nothing was said: its own wording, no scores."""
    return ItemReview(
        digest=draft.digest,
        question=draft.question,
        options=draft.options,
        answers=draft.answers,
        judgements=(Judgement(),) * len(draft.images),
        categories=draft.categories,
    )


def letters(draft: Draft) -> str:
    """Return the letters of a draft's options, none for an open question."""
    return string.ascii_uppercase[: len(draft.options)]


def problems(draft: Draft, said: ItemReview) -> dict[str, str]:
    """Return why a review cannot be kept, a sentence by field; none for one that can.

    Fields are named as in the file, those of lists with their place: ``options.0``, ``judgements.1.score``.
    """
    per_image = (said.answers, said.judgements, *([said.categories] if said.categories else []))
    if not (len(said.options) == len(draft.options) and all(len(part) == len(draft.images) for part in per_image)):
        return {"": "it does not have the options, images or categories of the draft"}
    return dict((*_problems_of_wording(draft, said), *_problems_of_scores(said)))


def remarks(draft: Draft, said: ItemReview) -> list[str]:
    """Return which rules that drafts of pairs have to keep the wording breaks as it is now, a sentence each."""
    if len(draft.images) != 2:
        return []
    texts = dict(zip(letters(draft), said.options, strict=True))
    first, second = (texts.get(answer, answer) for answer in said.answers)
    reply = PairReply(said.question, (said.options[0], said.options[1]), (first, second))
    return [f"{rule[0].upper()}{rule[1:]}." for rule in broken_rules(reply)]


def settled(draft: Draft, said: ItemReview) -> ItemReview:
    """Return a review without problems as the file holds it, whichever way it was given.

    A question that is not correct has the lowest score. A score without a word on an aspect says that it is met.
    """
    categories = tuple(tuple(name.strip() for name in names if name.strip()) for names in said.categories)
    return said.model_copy(
        update={
            "question": said.question.strip(),
            "options": tuple(option.strip() for option in said.options),
            "answers": tuple(answer.strip() for answer in said.answers),
            "judgements": tuple(map(_settled_judgement, said.judgements)),
            "categories": categories if any(categories) or draft.categories else (),
            "hallucination": None if said.hallucination == draft.hallucination else said.hallucination,
            "note": said.note.strip(),
        }
    )


def _settled_judgement(one: Judgement) -> Judgement:
    if one.correctness is False:
        return one.model_copy(update={"score": LOWEST})
    if one.score is None:
        return one
    return one.model_copy(update={name: True for name in ASPECTS if getattr(one, name) is None})


def _problems_of_wording(draft: Draft, said: ItemReview) -> Iterator[tuple[str, str]]:
    if not said.question.strip():
        yield "question", "the question is empty"
    seen: dict[str, str] = {}
    for number, (letter, option) in enumerate(zip(letters(draft), said.options, strict=True)):
        text = " ".join(option.casefold().split())
        if not text:
            yield f"options.{number}", f"option {letter} is empty"
        elif text in seen:
            yield f"options.{number}", f"option {letter} says the same as option {seen[text]}"
        seen.setdefault(text, letter)
    for number, answer in enumerate(said.answers):
        if draft.options and answer.strip() not in tuple(letters(draft)):
            yield f"answers.{number}", f"the answer is none of {', '.join(letters(draft))}"
        elif not answer.strip():
            yield f"answers.{number}", "the answer is empty"
    if said.hallucination not in (None, *HALLUCINATIONS):
        yield "hallucination", f"it is none of {', '.join(HALLUCINATIONS)}"
    elif said.hallucination and not draft.hallucination:
        yield "hallucination", "questions of this study have no type"


def _problems_of_scores(said: ItemReview) -> Iterator[tuple[str, str]]:
    for number, one in enumerate(said.judgements):
        if one.score is not None and not LOWEST <= one.score <= HIGHEST:
            yield f"judgements.{number}.score", f"the score is none of {LOWEST} to {HIGHEST}"
        elif one.correctness is False and one.score not in (None, LOWEST):
            yield (
                f"judgements.{number}.score",
                f"a question that is not correct has score {LOWEST}; say first that it is correct",
            )
