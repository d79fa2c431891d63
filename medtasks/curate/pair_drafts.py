"""Drafting one question per pair by MediConfusion's prompt A.1 (arXiv 2409.15477, section 2 and appendix A.1).

Which image of a pair has option A is settled by a digest of the pair's id: an LLM names the first image's answer first,
and a benchmark in which the first image always had A would be solved by position. In the published set it has A in 88
of 176 pairs.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from medtasks.curate.captions import one_line, why_not_sent
from medtasks.curate.drafts import Draft, Drafted, Outcome, draft_all
from medtasks.curate.llm import ask, llm_label
from medtasks.curate.pair_replies import PairReply, broken_rules, chosen, read_pair_reply
from medtasks.curate.prompts import prompts_in
from medtasks.curate.study import IMAGES, PAIRS, ImagePair, StudyImage, read_images, read_pairs
from medtasks.data.journal import digest_of
from medtasks.errors import SourceError
from medtasks.judges.client import Judge

PROMPTS = "pair_prompts"
_LETTERS = ("A", "B")


def draft_pairs(folder: Path, llm: Judge) -> Counter[Outcome]:
    """Draft a question for each pair of a study that has none yet, and return how many pairs came to what.

    Errors are those of :func:`~medtasks.curate.drafts.draft_all`, and a SourceError for a pair of unknown images.
    """
    images = read_images(folder)
    jobs = {}
    for pair in read_pairs(folder):
        if not images.keys() >= set(pair.images):
            raise SourceError(f"{folder / PAIRS} has a pair of an image that {IMAGES} has not; make the study again")
        jobs[pair.pair_id] = _job(llm, pair, images)
    return draft_all(folder, jobs, llm.settings.concurrency)


def _job(llm: Judge, pair: ImagePair, images: Mapping[str, StudyImage]) -> tuple[str, Callable[[], Drafted]]:
    captions = [images[image].text for image in pair.images]
    marks = ("**CAPTION OF IMAGE 1**", "**CAPTION OF IMAGE 2**")
    values = dict(zip(marks, map(one_line, captions), strict=True))
    prompt, label = prompts_in(PROMPTS)["question"], llm_label(llm)
    asked = prompt.asked(values, label)
    line = partial(Drafted, request=pair.pair_id, asked=asked)
    if why := next(filter(None, map(why_not_sent, captions)), ""):
        return asked, partial(line, outcome=Outcome.SKIPPED, reason=why)

    def job() -> Drafted:
        found = ask(llm, prompt, prompt.filled(values), read_pair_reply)
        drafts = () if found.value is None else (draft_of(pair, found.value),)
        return line(outcome=found.outcome, reason=found.reason, llm=label, prompt=prompt.label, drafts=drafts)

    return asked, job


def draft_of(pair: ImagePair, reply: PairReply) -> Draft:
    """Return what a reply drafts for a pair, as it is where a rule rejects it, else with its options in order."""
    options, answers = reply.options, reply.answers
    why = next(iter(broken_rules(reply)), "")
    if not why:
        letters = _LETTERS if int(digest_of(pair.pair_id)[0], 16) % 2 else _LETTERS[::-1]
        positions = [chosen(answer, options) for answer in answers]
        texts = {letter: options[position or 0] for letter, position in zip(letters, positions, strict=True)}
        options, answers = (texts["A"], texts["B"]), (letters[0], letters[1])
    return Draft(
        item_id=pair.pair_id,
        images=pair.images,
        question=reply.question,
        options=options,
        answers=answers,
        outcome=Outcome.REJECTED if why else Outcome.DRAFTED,
        reason=why,
    )
