"""Yes as often as no: what of a study's yes/no questions is left out so that neither answer is the better guess.

MedHEval asks its LLM for "an equal number of 'yes' and 'no' answers" (figures 8 and 10); of what it released 41% to 54%
are yes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from medtasks.curate.drafts import Draft
from medtasks.data.journal import digest_of
from medtasks.data.medheval.gold import YES_NO


def balanced(drafts: Mapping[str, Draft]) -> tuple[set[str], Counter[str]]:
    """Return the ids of the drafts to keep, and how many others are left out by reason.

    Of the answer that is given more often, those with the smallest digests of their ids are kept: rewording a question
    changes nothing, and one more draft changes what becomes of one other at most. Questions without yes and no stay.
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
