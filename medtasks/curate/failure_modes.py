"""Failure modes that pairs probe, as an LLM sees them by MediConfusion's prompt A.3 (arXiv 2409.15477, section 4.1).

The paper's radiologist corrected and refined what came of it: it is a draft for an expert, no result.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medtasks.curate.captions import one_line
from medtasks.curate.drafts import Outcome
from medtasks.curate.known_pairs import KnownPair, KnownPairs
from medtasks.curate.llm import Asked, ask, free_text, llm_label
from medtasks.curate.pair_drafts import PROMPTS
from medtasks.curate.prompts import prompts_in
from medtasks.curate.study import write_private
from medtasks.errors import MedTasksError
from medtasks.judges.client import Judge

PAIRS_PER_REQUEST = 100
FILE = "patterns.md"


def write_failure_modes(known: KnownPairs, llm: Judge, path: Path) -> Counter[Outcome]:
    """Ask about all pairs with a question, 100 at a time, and write what was said; return how many came to what.

    Replies are kept on disk by the LLM's cache, so that a later run asks only for those that failed. MedTasksError: no
    pair has a question, every request failed, or the file cannot be written.
    """
    asked = [one for one in known.pairs.values() if one.question]
    if not asked:
        raise MedTasksError(f"no pair of '{known.study.name}' has a question; draft some with 'medtasks curate draft'")
    blocks = [asked[start : start + PAIRS_PER_REQUEST] for start in range(0, len(asked), PAIRS_PER_REQUEST)]
    with ThreadPoolExecutor(llm.settings.concurrency) as workers:
        replies = list(workers.map(lambda block: _ask(llm, block), blocks))
    counts = Counter(reply.outcome for reply in replies)
    if not counts[Outcome.DRAFTED]:
        raise MedTasksError(f"the LLM named no failure modes: {replies[-1].reason}; nothing was written")
    write_private(path, _text(known, llm, blocks, replies))
    return counts


def _ask(llm: Judge, block: Sequence[KnownPair]) -> Asked[str]:
    prompt = prompts_in(PROMPTS)["failure_modes"]
    blocks = [
        {
            "Pair 0": f"Pair {number}",
            "**IMAGE 1 CAPTION**": one_line(one.captions[0]),
            "**IMAGE 2 CAPTION**": one_line(one.captions[1]),
            "**QUESTION**": " ".join(
                [
                    one_line(one.question),
                    *(f"({letter}) {option}" for letter, option in zip("AB", one.options, strict=True)),
                ]
            ),
        }
        for number, one in enumerate(block)
    ]
    return ask(llm, prompt, prompt.with_blocks(blocks), free_text)


def _text(known: KnownPairs, llm: Judge, blocks: Sequence[Sequence[KnownPair]], replies: Sequence[Asked[str]]) -> str:
    label = prompts_in(PROMPTS)["failure_modes"].label
    parts = [
        f"# Failure modes of {known.study.name}\n\nDrafted by {llm_label(llm)} with prompt {label}, for an expert to "
        f"correct."
    ]
    for block, reply in zip(blocks, replies, strict=True):
        sent = ", ".join(f"{number}: {one.pair.pair_id}" for number, one in enumerate(block))
        parts.append(f"## {len(block)} pairs, {block[0].pair.pair_id} to {block[-1].pair.pair_id}")
        parts.append(reply.value or f"No reply: {reply.reason}.")
        parts.append(f"Pairs by their number in the prompt: {sent}")
    return "\n\n".join(parts) + "\n"
