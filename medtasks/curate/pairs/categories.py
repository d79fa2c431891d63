"""Medical areas of images by MediConfusion's prompts A.2 (arXiv 2409.15477): the list, and the one of each image.

The list is the paper's, the user's own, or found by the LLM from captions of the study. Each image is asked about once,
whatever the number of its pairs, and only where a question was drafted for it.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from medtasks.curate.drafts import DraftOutcome, Job, category_request, draft_all, read_drafts
from medtasks.curate.llm import ask, free_text, job_of, llm_label, one_line, prompts_in, why_not_sent
from medtasks.curate.pairs.pair_drafts import PROMPTS
from medtasks.curate.study import Record, read_images, write_private
from medtasks.errors import MedTasksError, SourceError
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.judges.judge_client import Judge

FOUND = "categories.json"
CAPTIONS = 100
"""Captions from which categories are found (appendix A.2)."""
_LONGEST, _MOST = 60, 40
_NAME = rf"(?P<name>[^\W\d_][^:*\n]{{1,{_LONGEST}}}?)\s*[*_]*\s*(?:[:(–-].*)?"
_HEADINGS = (  # kinds of lines that name a category, the surest first; a reply is read by one of them
    re.compile(rf"\s*#{{1,6}}\s*\d+[.)]\s*[*_]*{_NAME}"),
    re.compile(rf"\s*[*_]*\d+[.)]\s*[*_]*{_NAME}"),
    re.compile(rf"\s*#{{1,6}}\s*[*_]*{_NAME}"),
    re.compile(rf"\s*(?:[-*•]\s+)?\*\*{_NAME}"),
)


class FoundCategories(Record):
    """Categories that an LLM found, in the folder of their study; the user may change them."""

    categories: tuple[str, ...]  # none where the reply could not be read
    reply: str
    captions: tuple[str, ...]  # ids of the images whose captions were sent
    llm: str
    prompt: str


def given_categories(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; MedTasksError for fewer than two."""
    names = tuple(dict.fromkeys(filter(None, map(one_line, text.split(",")))))
    if len(names) < 2:
        raise MedTasksError(f"--categories '{text}' names fewer than two; write them with commas, or 'find'")
    return names


def found_categories(folder: Path, llm: Judge, seed: int = 0) -> tuple[str, ...]:
    """Return the categories of a study that the LLM finds in its captions, asked once and kept in :data:`FOUND`.

    MedTasksError: no categories were found; the user can write them into the file, which has the reply.
    """
    path = folder / FOUND
    if path.is_file():
        try:
            found = FoundCategories.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError):
            raise SourceError(f"{path} is damaged; mend it, or delete it to ask again") from None
    else:
        images = read_images(folder)
        usable = sorted(name for name, image in images.items() if not why_not_sent(image.text))
        if not usable:
            raise MedTasksError("no caption of the study can be sent to find categories; name them yourself")
        sample = tuple(random.Random(seed).sample(usable, min(CAPTIONS, len(usable))))
        prompt = prompts_in(PROMPTS)["found_categories"]
        blocks = [
            {"Caption 0": f"Caption {number}", "**IMAGE 0 CAPTION**": one_line(images[name].text)}
            for number, name in enumerate(sample)
        ]
        asked = ask(llm, prompt, prompt.with_blocks(blocks), free_text)
        if asked.value is None:
            raise MedTasksError(
                f"no categories were found: {asked.reason}; run it again, or give them with --categories"
            )
        named, label = headings(asked.value), llm_label(llm)
        found = FoundCategories(categories=named, reply=asked.value, captions=sample, llm=label, prompt=prompt.label)
        write_private(path, found.model_dump_json(indent=1) + "\n")
    if len(found.categories) < 2:
        raise MedTasksError(
            f"no list of categories can be read from the LLM's reply in {path}; write their names under 'categories' "
            f"there, or give them with --categories"
        )
    return found.categories


def headings(reply: str) -> tuple[str, ...]:
    r"""Return the categories that the headings of a reply name, all in one form; none where that is not plain.

    Example:
        >>> headings("Sure:\n1. **Cerebral**\n   - Caption 0\n2. **Head and Neck:** Captions 1, 2")
        ('Cerebral', 'Head and Neck')
    """
    lines = [one_line(line) for line in (without_thoughts(reply) or "").splitlines()]
    for form in _HEADINGS:
        found = [match["name"].strip("*_ .") for line in lines if (match := form.fullmatch(line))]
        names = tuple(dict.fromkeys(name for name in found if not re.match(r"captions?\b", name, re.IGNORECASE)))
        if 2 <= len(names) <= _MOST and not any("," in name for name in names):
            return names
    return ()


def categorize(folder: Path, llm: Judge, names: Sequence[str] | None) -> Counter[DraftOutcome]:
    """Ask for the category of each image of a drafted question, and count the outcomes.

    ``names`` are the categories; None takes the paper's list and its prompt to the letter.
    """
    images = read_images(folder)
    shown = dict.fromkeys(image for draft in read_drafts(folder).values() for image in draft.images)
    prompts = prompts_in(PROMPTS)
    prompt = prompts["category"] if names is None else prompts["category_corrected"]
    listed = names or given_categories(prompt.user.rsplit("Categories:", 1)[1].strip('" \n'))
    marks = {} if names is None else {"**CATEGORIES**": ", ".join(names)}

    def read(reply: str) -> dict[str, tuple[str, ...]] | None:
        categories = named(reply, listed)
        return None if categories is None else {"categories": categories}

    jobs: dict[str, Job] = {}
    for image in shown:
        request, values = category_request(image), {**marks, "**IMAGE CAPTION**": one_line(images[image].text)}
        jobs[request] = job_of(llm, request, prompt, values, read)
    return draft_all(folder, jobs, llm.settings.concurrency)


def named(reply: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the categories that a reply consists of, one or several; None where it says anything else.

    Example:
        >>> areas = ["Cerebral", "Head and Neck", "Vascular"]
        >>> named("**Vascular, head and neck.**", areas), named("It is Vascular", areas)
        (('Vascular', 'Head and Neck'), None)
    """
    said = one_line(re.sub(r"[*_`\"]", "", without_thoughts(reply) or "")).casefold()
    said = re.sub(r"^categor(?:y|ies)\s*:\s*", "", said).rstrip(".")
    known = {one_line(name).casefold(): name for name in names}
    one_of = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    between = r"\s*(?:,(?:\s*and)?|;|/|&|\band\b)\s*"
    if not re.fullmatch(f"(?:{one_of})(?:{between}(?:{one_of}))*", said):
        return None
    return tuple(dict.fromkeys(known[name] for name in re.findall(one_of, said)))
