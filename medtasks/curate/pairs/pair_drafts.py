"""MediConfusion's prompts (arXiv 2409.15477): a question per pair, the area of each image, the failure modes of pairs.

Questions follow prompt A.1 (section 2). The reply names ``Question:``, ``Option1:``, ``Option2:``, ``Image1:`` and
``Image2:``, each once, in this order and with a text on the same line; only headings such as ``Correct answers:`` may
be between them. Markdown and list numbers around the names, and lines before and after, do not matter. Any other reply
is malformed.

A digest of the pair's id decides which image has option A: an LLM names the first image's answer first, and a benchmark
in which the first image always had A would be solved by position. In the published set it has A in 88 of 176 pairs.

Areas follow the second prompt of A.2. The list is the paper's, or the user's, for which the first prompt of A.2 lets an
LLM make a draft from captions. Each
image is sent once, whatever the number of its pairs, and only if a question was drafted for it.

Failure modes that pairs probe are named by prompt A.3 (section 4.1), for the pairs of a study or the published ones.
The paper's radiologist corrected the LLM's list: it is a draft for an expert, no result.
"""

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    Job,
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
    ("no", "not", "non", "without", "absent", "absence", "lack", "lacks", "neither", "never", "nor")
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
    answers: tuple[str, str]  # of the first and the second image, in the words of the reply


def draft_pairs(folder: Path, llm: Judge) -> Counter[DraftOutcome]:
    """Draft a question for each pair of a study that has none yet, and count the outcomes."""
    images = read_images(folder)
    prompt = prompts_in(PROMPTS)["question"]
    jobs: dict[str, Job] = {}
    for pair in read_pairs(folder):
        if not images.keys() >= set(pair.images):
            raise SourceError(
                f"{folder / PAIRS} has a pair of an image that {IMAGES} has not; make the study again"
            )
        captions = [images[image].text for image in pair.images]
        values = dict(zip(_MARKS, map(one_line, captions), strict=True))
        skip = _skip_reason(values.values())
        jobs[pair.pair_id] = job_of(
            llm, pair.pair_id, prompt, values, partial(_pair_draft, pair), skip=skip
        )
    return draft_all(folder, jobs, llm.settings.concurrency)


def _skip_reason(captions: Iterable[str]) -> str:
    for caption in captions:
        if len(caption) < SHORTEST:
            return f"a caption is shorter than {SHORTEST} characters"
        if addresses_judge(caption) or _LIKE_A_DRAFT.search(caption):
            return "a caption seems to address the LLM"
    return ""


def _pair_draft(pair: ImagePair, text: str) -> dict[str, tuple[Draft]] | None:
    """Read the draft of a pair from a reply: unchanged if it is rejected, else with its options in order."""
    reply = read_pair_reply(text)
    if reply is None:
        return None
    question, options, answers = reply.question, reply.options, reply.answers
    draft = Draft(
        item_id=pair.pair_id,
        images=pair.images,
        question=question,
        options=options,
        answers=answers,
    )
    if causes := broken_rules(reply):
        return {
            "drafts": (
                draft.model_copy(update={"outcome": DraftOutcome.REJECTED, "reason": causes[0]}),
            )
        }
    letters = ("A", "B") if int(digest_of(pair.pair_id)[0], 16) % 2 else ("B", "A")
    positions = [option_of_answer(answer, options) for answer in answers]
    texts = {
        letter: options[position or 0] for letter, position in zip(letters, positions, strict=True)
    }
    return {
        "drafts": (
            draft.model_copy(update={"options": (texts["A"], texts["B"]), "answers": letters}),
        )
    }


def read_pair_reply(text: str) -> PairReply | None:
    """Read the draft in a reply; None for a malformed one."""
    names, values = [], []
    for line in (without_thoughts(text) or "").splitlines():
        if match := _LABELLED.fullmatch(line):
            names.append(match[1].lower().replace("question 1", "question").replace(" ", ""))
            value = match[2].strip(_MARKUP)
            if len(value) > 1 and value[0] + value[-1] in _QUOTES:
                value = value[1:-1].strip(_MARKUP)
            values.append(one_line(value))
        elif (
            0 < len(names) < len(_PARTS)
            and (other := line.strip(f"{_MARKUP}#-"))
            and not other.endswith(":")
        ):
            return None
    if tuple(names) != _PARTS or not all(0 < len(value) <= LONGEST for value in values):
        return None
    question, first, second, of_first, of_second = values
    return PairReply(question, (first, second), (of_first, of_second))


def option_of_answer(answer: str, options: tuple[str, str]) -> int | None:
    """Return the position of the option that an answer repeats or names; None where it is none of them, or both."""
    if named := _NAMED.fullmatch(answer):
        number = int(named[1]) - 1
        return number if _words(named[2]) in ([], _words(options[number])) else None
    same = [number for number, option in enumerate(options) if _words(option) == _words(answer)]
    return same[0] if len(same) == 1 else None


def broken_rules(reply: PairReply) -> list[str]:
    """List the rules that a draft breaks, as phrases without its text."""
    wording = " | ".join((reply.question, *reply.options))
    answers = [option_of_answer(answer, reply.options) for answer in reply.answers]
    short, long = sorted(map(_words, reply.options), key=len)
    within = (
        start
        for start in range(len(long) - len(short) + 1)
        if long[start : start + len(short)] == short
    )
    start = next(
        within, None
    )  # of one option in the other: "stenosis", "mild stenosis"; but not "no stenosis"
    others = [] if start is None else long[:start] + long[start + len(short) :]
    rules = (
        (start is not None and _NEGATIONS.isdisjoint(others), "the options overlap"),
        (None in answers, "an answer is none of the options"),
        (answers[0] == answers[1], "both answers are equal"),
        (bool(_OF_SEVERAL_IMAGES.search(wording)), "it speaks of the images"),
        (bool(_COMPARING.search(wording)), "it compares the images"),
    )
    return [reason for broken, reason in rules if broken]


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def given_categories(text: str) -> tuple[str, ...]:
    """Split a list with commas; MedTasksError for fewer than two names."""
    names = tuple(dict.fromkeys(filter(None, map(one_line, text.split(",")))))
    if len(names) < 2:
        raise MedTasksError(f"--categories '{text}' names fewer than two; write them with commas")
    return names


def categorize(folder: Path, llm: Judge, names: Sequence[str] | None) -> Counter[DraftOutcome]:
    """Ask for each drafted image's category of ``names``, None for the paper's list and prompt; count the outcomes."""
    images = read_images(folder)
    used = dict.fromkeys(image for draft in read_drafts(folder).values() for image in draft.images)
    prompts = prompts_in(PROMPTS)
    prompt = prompts["category"] if names is None else prompts["category_corrected"]
    listed = names or given_categories(prompt.user.rsplit("Categories:", 1)[1].strip('" \n'))
    marks = {} if names is None else {"**CATEGORIES**": ", ".join(names)}

    by_text = {one_line(name).casefold(): name for name in listed}
    category = "|".join(re.escape(name) for name in sorted(by_text, key=len, reverse=True))
    between = r"\s*(?:,(?:\s*and)?|;|/|&|\band\b)\s*"

    def read(reply: str) -> dict[str, tuple[str, ...]] | None:
        """Read the categories that a reply consists of, one or several; None if it says anything else."""
        text = one_line(re.sub(r"[*_`\"]", "", without_thoughts(reply) or "")).casefold()
        text = re.sub(r"^categor(?:y|ies)\s*:\s*", "", text).rstrip(".")
        if not re.fullmatch(f"(?:{category})(?:{between}(?:{category}))*", text):
            return None
        return {
            "categories": tuple(dict.fromkeys(by_text[name] for name in re.findall(category, text)))
        }

    jobs: dict[str, Job] = {}
    for image in used:
        request, values = (
            f"categories/{image}",
            {**marks, "**IMAGE CAPTION**": one_line(images[image].text)},
        )
        jobs[request] = job_of(llm, request, prompt, values, read)
    return draft_all(folder, jobs, llm.settings.concurrency)


def write_category_list(folder: Path, llm: Judge, path: Path) -> int:
    """Ask for the categories of up to 100 captions of a study, and write the reply for an expert.

    Images are drawn at random, the same each time. Returns their number; MedTasksError without a caption or a reply.
    """
    captions = {}
    for image_id, image in sorted(read_images(folder).items()):
        caption = one_line(image.text)
        if not _skip_reason([caption]):
            captions[image_id] = {"**IMAGE 0 CAPTION**": caption}
    drawn = random.Random(20240926).sample(list(captions), min(len(captions), CAPTIONS_PER_REQUEST))
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
        f"JournalLine by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
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


def _with_blocks(prompt: DraftingPrompt, label: str, entries: Sequence[Mapping[str, str]]) -> str:
    """Return the user's part of a prompt, followed by its block for each entry with its number after ``label``."""
    text = prompt.user
    for number, marks in enumerate(entries):
        text += fill_marks(prompt.block, {f"{label} 0": f"{label} {number}", **marks})
    return text


class _Published(BaseModel):
    """The fields used of a record of ``dataset.json``."""

    cap_1: str
    cap_2: str
    question: str
    option_A: str
    option_B: str


def pairs_with_questions(
    folder: Path | None, source: Path | None
) -> tuple[Study, dict[str, dict[str, str]]]:
    """Return a study, and its pairs with a question: texts for the marks of prompt A.3, by pair id.

    Without a folder they are those of MediConfusion's published ``dataset.json``, in ``source`` or where it was
    prepared from, and the study is the one that would have made them.
    """
    name, texts = MEDICONFUSION.name, {}  # captions, question and options by pair id
    if folder is not None:
        study, images, drafts = (
            read_study(folder, StudyKind.PAIRS),
            read_images(folder),
            read_drafts(folder),
        )
        for pair in read_pairs(folder):
            if draft := drafts.get(pair.pair_id):
                captions = [images[name].text if name in images else "" for name in pair.images]
                texts[pair.pair_id] = (captions, draft.question, draft.options)
    else:
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
            records = TypeAdapter(dict[str, _Published]).validate_json(path.read_bytes())
        except ValidationError as error:
            raise SourceError(
                f"{path} is malformed ({problem_of(error)}); get it again from {MEDICONFUSION.source}"
            ) from None
        study = Study(
            name=name, kind=StudyKind.PAIRS, access=MEDICONFUSION.access, source=str(path)
        )
        for pair_id, record in records.items():
            texts[pair_id] = (
                [record.cap_1, record.cap_2],
                record.question,
                (record.option_A, record.option_B),
            )
    blocks = {}
    for pair_id, (captions, question, options) in texts.items():
        marks = {
            f"**IMAGE {image} CAPTION**": one_line(text) for image, text in enumerate(captions, 1)
        }
        lettered = [f"({letter}) {option}" for letter, option in zip("AB", options, strict=True)]
        blocks[pair_id] = {**marks, "**QUESTION**": " ".join([one_line(question), *lettered])}
    return study, blocks


def write_failure_modes(
    name: str, pairs: Mapping[str, Mapping[str, str]], llm: Judge, path: Path
) -> Counter[DraftOutcome]:
    """Ask about all pairs of a benchmark, 100 at a time, and write the replies; count the outcomes.

    The LLM's cache keeps replies, so that a later run sends only the requests that failed.
    """
    if not pairs:
        raise MedTasksError(
            f"no pair of '{name}' has a question; draft some with 'medtasks curate draft'"
        )
    parts = [
        list(pairs)[start : start + PAIRS_PER_REQUEST]
        for start in range(0, len(pairs), PAIRS_PER_REQUEST)
    ]
    prompt = prompts_in(PROMPTS)["failure_modes"]
    requests = [
        _with_blocks(prompt, "Pair", [pairs[pair_id] for pair_id in part]) for part in parts
    ]
    with ThreadPoolExecutor(llm.settings.concurrency) as workers:
        replies = list(workers.map(lambda request: ask(llm, prompt, request, free_text), requests))
    counts = Counter(outcome for _, outcome, _ in replies)
    if not counts[DraftOutcome.DRAFTED]:
        raise MedTasksError(
            f"the LLM named no failure modes: {replies[-1][2]}; nothing was written"
        )
    heading = (
        f"JournalLine by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
    )
    texts = [f"# Failure modes of {name}\n\n{heading}"]
    for part, (reply, _, reason) in zip(parts, replies, strict=True):
        sent = ", ".join(f"{number}: {pair_id}" for number, pair_id in enumerate(part))
        texts.append(f"## {len(part)} pairs, {part[0]} to {part[-1]}")
        texts.append(reply or f"No reply: {reason}.")
        texts.append(f"Pairs by their number in the prompt: {sent}")
    write_private(path, "\n\n".join(texts) + "\n")
    return counts
