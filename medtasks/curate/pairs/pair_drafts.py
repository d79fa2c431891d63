"""MediConfusion's prompts (arXiv 2409.15477): a question per pair, the area of each image, the failure modes of pairs.

Questions follow prompt A.1 (section 2). The reply names ``Question:``, ``Option1:``, ``Option2:``, ``Image1:`` and
``Image2:``, each once, in this order and with a text on the same line; only headings such as ``Correct answers:`` may
be between them. Markdown and list numbers around the names, and lines before and after, do not matter. Any other reply
is malformed.

A digest of the pair's id decides which image has option A: an LLM names the first image's answer first, and a benchmark
in which the first image always had A would be solved by position. In the published set it has A in 88 of 176 pairs.

Areas follow the second prompt of A.2. The list is the paper's, or the user's, for which the first prompt of A.2 lets an
LLM make a draft from captions. The caption of each image is sent once, whatever the number of its pairs, and only if a
question was drafted for it.

Failure modes that pairs probe are named by prompt A.3 (section 4.1), for the pairs of a study or the published ones.
The paper's radiologist corrected the LLM's list: it is a draft for an expert, no result.
"""

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from medtasks.curate.drafts import (
    LONGEST,
    Draft,
    DraftingPrompt,
    DraftOutcome,
    ask,
    draft_all,
    fill_marks,
    free_text,
    job_of,
    one_line,
    prompts_in,
    read_drafts,
)
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    ImagePair,
    Study,
    StudyKind,
    problem_of,
    read_images,
    read_pairs,
    read_study,
    write_private,
)
from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_manifest import Manifest
from medtasks.errors import MedTasksError, SourceError
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.home import dataset_folder
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import Judge
from medtasks.net.journal import digest_of

PROMPTS = "pair_prompts"
FAILURE_MODES = "patterns.md"
CATEGORY_LIST = "categories.md"
PAIRS_PER_REQUEST = 100
CAPTIONS_PER_REQUEST = 100
SHORTEST = 100
"""Characters; shorter captions tell too little of the image (MediConfusion, section 2)."""
_LIKE_A_DRAFT = re.compile(r"\b(?:question|option ?[12ab]|image ?[12])\s*:", re.IGNORECASE)
_MARKS = ("**CAPTION OF IMAGE 1**", "**CAPTION OF IMAGE 2**")
_PARTS = ("question", "option1", "option2", "image1", "image2")
_LABELLED = re.compile(
    r"[\s>#*_`-]*+(?:\d++[.)]\s*+)?[*_`]*+(question(?: 1)?|option ?[12]|image ?[12])[*_`]*\s*:\s*(.*)",
    re.IGNORECASE,
)
_MARKUP = " \t*_`"
_QUOTES = {"<>", '""', "''", "“”", "‘’"}
_NAMED = re.compile(r"option ?([12])\b[\s:.,()–—-]*(.*?)\)?", re.IGNORECASE)
# Signs tell options apart: "< 5 mm" and "> 5 mm", "HER2+" and "HER2-".
_WORD = re.compile(r"\w+(?:[.,]\d+)*|[<>≤≥±+]|(?<=\w)[-−](?!\w)")
_NEGATIONS = frozenset(
    "no not non without absent absence lack lacks neither never nor".split()  # noqa: SIM905 - words
)

_SHOWN = r"(?:images|scans|pictures|radiographs)"
# "on the T2-weighted images" asks of one image; "in the images" of several.
_OF_SEVERAL_IMAGES = re.compile(
    r"\bimages? ?(?:no\. ?|# ?)?[12]\b"
    rf"|\bthe (?:two |given |provided |above )?images\b|\b(?:both|these|those|two|either of the)(?: of the)? {_SHOWN}\b"
    r"|\b(?:first|second|other|each|either) (?:image|scan|picture|radiograph)\b",
    re.IGNORECASE,
)
# "brighter compared to the liver" and "the disc between the two vertebrae" can be seen on one image.
_COMPARING = re.compile(
    r"\bwhich (?:image|picture|radiograph)(?: (?:shows?|has|is|was|does|contains?|depicts?|displays?|demonstrates?|"
    r"reveals?|exhibits?)\b|\s*\?)"
    r"|\bcompar\w+ (?:to|with) (?:the |an?)?(?:other|first|second|previous|prior|former|latter)\b"
    rf"|\bcompar\w+ (?:the |both |two )*{_SHOWN}\b"
    rf"|\bbetween the (?:two )?(?:{_SHOWN}|patients|cases)\b|\bbetween the two\s*(?:[?.,]|$)"
    r"|\b(?:than|unlike|from) (?:in |on |that of )?the other(?: one| image| scan| patient)?\s*(?:[?.,]|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PairReply:
    """A question about two images as the LLM wrote it."""

    question: str
    options: tuple[str, str]
    # Right answers for the first and the second image, in the words of the reply
    answers: tuple[str, str]


def draft_pairs(folder: Path, llm: Judge) -> Counter[DraftOutcome]:
    """Ask the LLM for a question on each pair of a study, and append the results to the study's drafts.

    What the LLM answered in an earlier run, even by a refusal or with a rejected draft, is not asked again. A request
    that fails is counted, not raised.

    Returns:
        The number of pairs by outcome, those of earlier runs included.

    Raises:
        SourceError: A pair has an image that the study does not list.
        MedTasksError: The drafts cannot be written, or another process drafts.
    """
    images = read_images(folder)
    prompt = prompts_in(PROMPTS)["question"]
    jobs = {}
    for pair in read_pairs(folder):
        if not images.keys() >= set(pair.images):
            raise SourceError(
                f"{folder / PAIRS} has a pair of an image that {IMAGES} has not; make the study again"
            )
        captions = [one_line(images[image].text) for image in pair.images]
        jobs[pair.pair_id] = job_of(
            llm,
            pair.pair_id,
            prompt,
            dict(zip(_MARKS, captions, strict=True)),
            partial(_pair_draft, pair),
            skip=_skip_reason(captions),
        )
    return draft_all(folder, jobs, llm.settings.concurrency)


def _skip_reason(captions: Iterable[str]) -> str:
    """Return why captions of an image or pair cannot be sent to the LLM. The text is empty if they can."""
    for caption in captions:
        if len(caption) < SHORTEST:
            return f"a caption is shorter than {SHORTEST} characters"
        if addresses_judge(caption) or _LIKE_A_DRAFT.search(caption):
            return "a caption seems to address the LLM"
    return ""


def _pair_draft(pair: ImagePair, text: str) -> dict[str, tuple[Draft]] | None:
    """Read the draft of a pair from a reply: as written if it is rejected, else with options and answers by letter.

    Returns:
        Fields of the request's journal line, or None for a malformed reply.
    """
    reply = read_pair_reply(text)
    if reply is None:
        return None
    draft = Draft(
        item_id=pair.pair_id,
        images=pair.images,
        question=reply.question,
        options=reply.options,
        answers=reply.answers,
    )
    causes = broken_rules(reply)
    if causes:
        rejection = {"outcome": DraftOutcome.REJECTED, "reason": causes[0]}
        return {"drafts": (draft.model_copy(update=rejection),)}
    is_first_a = int(digest_of(pair.pair_id)[0], 16) % 2
    letters = ("A", "B") if is_first_a else ("B", "A")
    texts = {}
    for letter, answer in zip(letters, reply.answers, strict=True):
        position = option_of_answer(answer, reply.options)
        texts[letter] = reply.options[position or 0]
    lettered = {"options": (texts["A"], texts["B"]), "answers": letters}
    return {"drafts": (draft.model_copy(update=lettered),)}


def read_pair_reply(text: str) -> PairReply | None:
    r"""Read the draft in a reply, or return None for a malformed one.

    Example:
        >>> lines = "Question: Which side?", "Option1: left", "Option2: right", "Image1: left", "Image2: right"
        >>> read_pair_reply("\n".join(lines)).answers
        ('left', 'right')
    """
    names = []
    values = []
    for line in (without_thoughts(text) or "").splitlines():
        labelled = _LABELLED.fullmatch(line)
        if labelled:
            names.append(labelled[1].lower().replace("question 1", "question").replace(" ", ""))
            values.append(one_line(_without_markup(labelled[2])))
        elif 0 < len(names) < len(_PARTS):
            heading = line.strip(f"{_MARKUP}#-")
            if heading[-1:] not in ("", ":"):
                return None
    if tuple(names) != _PARTS or not all(0 < len(value) <= LONGEST for value in values):
        return None
    question, first, second, of_first, of_second = values
    return PairReply(question, (first, second), (of_first, of_second))


def _without_markup(text: str) -> str:
    value = text.strip(_MARKUP)
    if len(value) > 1 and value[0] + value[-1] in _QUOTES:
        return value[1:-1].strip(_MARKUP)
    return value


def option_of_answer(answer: str, options: tuple[str, str]) -> int | None:
    """Return the position, from 0, of the option that an answer repeats or names.

    It is None if the answer is neither option, or both.

    Example:
        >>> option_of_answer("Option 2", ("left", "right")), option_of_answer("Left.", ("left", "right"))
        (1, 0)
    """
    named = _NAMED.fullmatch(answer)
    if named:
        number = int(named[1]) - 1
        return number if _words(named[2]) in ([], _words(options[number])) else None
    same = [number for number, option in enumerate(options) if _words(option) == _words(answer)]
    return same[0] if len(same) == 1 else None


def broken_rules(reply: PairReply) -> list[str]:
    """List the rules that a draft breaks, as phrases without its text.

    Example:
        >>> broken_rules(PairReply("Which side?", ("left", "right"), ("left", "left")))
        ['both answers are equal']
    """
    wording = " | ".join((reply.question, *reply.options))
    answers = [option_of_answer(answer, reply.options) for answer in reply.answers]
    rules = (
        (_overlap(reply.options), "the options overlap"),
        (None in answers, "an answer is none of the options"),
        (answers[0] == answers[1], "both answers are equal"),
        (bool(_OF_SEVERAL_IMAGES.search(wording)), "it speaks of the images"),
        (bool(_COMPARING.search(wording)), "it compares the images"),
    )
    return [reason for broken, reason in rules if broken]


def _overlap(options: tuple[str, str]) -> bool:
    """Return whether one option is part of the other, as "stenosis" is of "mild stenosis" but not of "no stenosis"."""
    short, long = sorted(map(_words, options), key=len)
    for start in range(len(long) - len(short) + 1):
        end = start + len(short)
        if long[start:end] == short:
            return _NEGATIONS.isdisjoint(long[:start] + long[end:])
    return False


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def given_categories(text: str) -> tuple[str, ...]:
    """Split a list with commas.

    Raises:
        MedTasksError: The list has fewer than two names.

    Example:
        >>> given_categories("Chest, Head and neck, Chest")
        ('Chest', 'Head and neck')
    """
    names = tuple(dict.fromkeys(filter(None, map(one_line, text.split(",")))))
    if len(names) < 2:
        raise MedTasksError(
            f"--categories '{text}' names fewer than two; write them with commas"
        )
    return names


def categorize(folder: Path, llm: Judge, names: Sequence[str] | None) -> Counter[DraftOutcome]:
    """Ask for the categories of each image for which a question was drafted, by its caption.

    Requests that were answered by an earlier run are not repeated.

    Args:
        folder: Folder of the study.
        llm: The LLM to ask.
        names: Categories to choose from, or None for the paper's list and prompt.

    Returns:
        The number of images by outcome, those of earlier runs included.
    """
    images = read_images(folder)
    drafted_images: dict[str, None] = {}
    for draft in read_drafts(folder).values():
        drafted_images |= dict.fromkeys(draft.images)
    prompts = prompts_in(PROMPTS)
    marks = {}
    if names is None:
        prompt = prompts["category"]
        names = given_categories(prompt.user.rsplit("Categories:", 1)[1].strip('" \n'))
    else:
        prompt = prompts["category_corrected"]
        marks = {"**CATEGORIES**": ", ".join(names)}
    read = _category_reader(names)
    jobs = {}
    for image in drafted_images:
        request = f"categories/{image}"
        values = {**marks, "**IMAGE CAPTION**": one_line(images[image].text)}
        jobs[request] = job_of(llm, request, prompt, values, read)
    return draft_all(folder, jobs, llm.settings.concurrency)


def _category_reader(
    names: Sequence[str],
) -> Callable[[str], dict[str, tuple[str, ...]] | None]:
    """Return a function that reads the categories of a reply, or returns None for a reply that says anything else."""
    by_text = {one_line(name).casefold(): name for name in names}
    category = "|".join(re.escape(name) for name in sorted(by_text, key=len, reverse=True))
    between = r"\s*(?:,(?:\s*and)?|;|/|&|\band\b)\s*"
    only_categories = re.compile(f"(?:{category})(?:{between}(?:{category}))*")

    def categories_in(reply: str) -> dict[str, tuple[str, ...]] | None:
        """Return ``categories`` for the journal line, each once, or None for a reply that says anything else."""
        text = one_line(re.sub(r"[*_`\"]", "", without_thoughts(reply) or "")).casefold()
        text = re.sub(r"^categor(?:y|ies)\s*:\s*", "", text).rstrip(".")
        if not only_categories.fullmatch(text):
            return None
        names_in_reply = [by_text[name] for name in re.findall(category, text)]
        return {"categories": tuple(dict.fromkeys(names_in_reply))}

    return categories_in


def write_category_list(folder: Path, llm: Judge, path: Path) -> int:
    """Ask for the categories of up to 100 captions of a study, and write the reply for an expert.

    Args:
        folder: Folder of the study.
        llm: The LLM to ask.
        path: File to write, in Markdown.

    Returns:
        The number of images. They are drawn at random, the same each time.

    Raises:
        MedTasksError: No caption can be sent, or there is no reply.
    """
    captions = {}
    for image_id, image in sorted(read_images(folder).items()):
        caption = one_line(image.text)
        if not _skip_reason([caption]):
            captions[image_id] = {"**IMAGE 0 CAPTION**": caption}
    drawn = random.Random(20240926).sample(
        list(captions), min(len(captions), CAPTIONS_PER_REQUEST)
    )
    if not drawn:
        raise MedTasksError(
            f"no caption of {folder} can be sent: each is too short, or seems to give orders"
        )
    prompt = prompts_in(PROMPTS)["category_list"]
    request = _with_blocks(prompt, "Caption", [captions[image_id] for image_id in drawn])
    reply, _, reason = ask(llm, prompt, request, free_text)
    if reply is None:
        raise MedTasksError(f"the LLM named no categories: {reason}; nothing was written")
    heading = (
        f"Drafted by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
    )
    sent = ", ".join(f"{number}: {image_id}" for number, image_id in enumerate(drawn))
    texts = (
        f"# Categories of {len(drawn)} captions",
        heading,
        reply,
        f"Images by their number in the prompt: {sent}",
    )
    write_private(path, "\n\n".join(texts) + "\n")
    return len(drawn)


def _with_blocks(
    prompt: DraftingPrompt, label: str, entries: Sequence[Mapping[str, str]]
) -> str:
    """Return the user's part of a prompt, followed by its block for each entry with its number after ``label``."""
    text = prompt.user
    for number, marks in enumerate(entries):
        text += fill_marks(prompt.block, {f"{label} 0": f"{label} {number}", **marks})
    return text


class _CaptionedPair(BaseModel):
    """A pair with its question, by the keys of MediConfusion's ``dataset.json``."""

    cap_1: str
    cap_2: str
    question: str
    option_A: str
    option_B: str


def pairs_with_questions(
    folder: Path | None, source: Path | None
) -> tuple[Study, dict[str, dict[str, str]]]:
    """Return a study, and its pairs with a question.

    Args:
        folder: Folder of the study, or None for the published MediConfusion.
        source: Folder of MediConfusion's ``dataset.json``, or None for the folder that it was prepared from.

    Returns:
        The study (that of MediConfusion is the one that would have made it), and by pair id the texts for the marks of
        prompt A.3.

    Raises:
        SourceError: MediConfusion is not prepared, or there is no ``dataset.json``, or a malformed one.
        MedTasksError: The folder holds no study of pairs.
    """
    if folder is None:
        study, pairs = _published_pairs(source)
    else:
        study = read_study(folder, StudyKind.PAIRS)
        images = read_images(folder)
        drafts = read_drafts(folder)
        pairs = {}
        for listed in read_pairs(folder):
            draft = drafts.get(listed.pair_id)
            if draft is None:
                continue
            captions = [images[name].text if name in images else "" for name in listed.images]
            pairs[listed.pair_id] = _CaptionedPair(
                cap_1=captions[0],
                cap_2=captions[1],
                question=draft.question,
                option_A=draft.options[0],
                option_B=draft.options[1],
            )
    blocks = {}
    for pair_id, pair in pairs.items():
        options = f"(A) {pair.option_A} (B) {pair.option_B}"
        blocks[pair_id] = {
            "**IMAGE 1 CAPTION**": one_line(pair.cap_1),
            "**IMAGE 2 CAPTION**": one_line(pair.cap_2),
            "**QUESTION**": f"{one_line(pair.question)} {options}",
        }
    return study, blocks


def _published_pairs(source: Path | None) -> tuple[Study, dict[str, _CaptionedPair]]:
    """Return the pairs of MediConfusion.

    Args:
        source: Folder of the ``dataset.json``, or None for the folder that MediConfusion was prepared from.

    Raises:
        SourceError: MediConfusion is not prepared, or there is no ``dataset.json``, or a malformed one.
    """
    name = MEDICONFUSION.name
    try:
        published = str(source or Manifest.read(dataset_folder(name)).source)
    except FileNotFoundError:
        raise SourceError(
            f"'{name}' is not prepared; give the folder of its dataset.json with --source"
        ) from None
    places = (Path(published, "dataset.json"), Path(published, "data/dataset.json"))
    path = next(filter(Path.is_file, places), None)
    if path is None:
        raise SourceError(
            f"{published} is no folder with dataset.json, which holds the captions of '{name}'; give its folder "
            f"with --source"
        )
    try:
        pairs = TypeAdapter(dict[str, _CaptionedPair]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise SourceError(
            f"{path} is malformed ({problem_of(error)}); get it again from {MEDICONFUSION.source}"
        ) from None
    study = Study(
        name=name, kind=StudyKind.PAIRS, access=MEDICONFUSION.access, source=str(path)
    )
    return study, pairs


def write_failure_modes(
    name: str,
    pairs: Mapping[str, Mapping[str, str]],
    llm: Judge,
    path: Path,
) -> Counter[DraftOutcome]:
    """Ask about all pairs of a benchmark, 100 at a time, and write the replies.

    The LLM's cache keeps replies, so that a later run sends only the requests that failed.

    Args:
        name: Name of the benchmark.
        pairs: Texts for the marks of the prompt by pair id, see :func:`pairs_with_questions`.
        llm: The LLM to ask.
        path: File to write, in Markdown.

    Returns:
        The number of requests by outcome.

    Raises:
        MedTasksError: There are no pairs, or no request got a reply.
    """
    if not pairs:
        raise MedTasksError(
            f"no pair of '{name}' has a question; draft some with 'medtasks curate draft'"
        )
    prompt = prompts_in(PROMPTS)["failure_modes"]
    parts = []
    requests = []
    for start in range(0, len(pairs), PAIRS_PER_REQUEST):
        part = list(pairs)[start : start + PAIRS_PER_REQUEST]
        parts.append(part)
        requests.append(_with_blocks(prompt, "Pair", [pairs[pair_id] for pair_id in part]))
    with ThreadPoolExecutor(llm.settings.concurrency) as workers:
        replies = list(
            workers.map(lambda request: ask(llm, prompt, request, free_text), requests)
        )
    counts = Counter(outcome for _, outcome, _ in replies)
    if not counts[DraftOutcome.DRAFTED]:
        raise MedTasksError(
            f"the LLM named no failure modes: {replies[-1][2]}; nothing was written"
        )
    heading = (
        f"Drafted by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
    )
    texts = [f"# Failure modes of {name}\n\n{heading}"]
    for part, (reply, _, reason) in zip(parts, replies, strict=True):
        sent = ", ".join(f"{number}: {pair_id}" for number, pair_id in enumerate(part))
        texts.append(f"## {len(part)} pairs, {part[0]} to {part[-1]}")
        texts.append(reply or f"No reply: {reason}.")
        texts.append(f"Pairs by their number in the prompt: {sent}")
    write_private(path, "\n\n".join(texts) + "\n")
    return counts
