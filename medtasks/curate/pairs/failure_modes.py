"""Failure modes that pairs probe, named by an LLM with MediConfusion's prompt A.3 (arXiv 2409.15477, section 4.1).

The pairs are those of a study or the published ones. The paper's radiologist corrected the LLM's list: it is a draft
for an expert, no result.
"""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from medtasks.curate.drafts import DraftOutcome, read_drafts
from medtasks.curate.llm import ask, free_text, one_line, prompts_in
from medtasks.curate.pairs.pair_drafts import PROMPTS
from medtasks.curate.study import (
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
from medtasks.home import dataset_folder
from medtasks.judges.judge_client import Judge

PAIRS_PER_REQUEST = 100
FILE = "patterns.md"
_FILES = ("dataset.json", "data/dataset.json")


@dataclass(frozen=True)
class KnownPair:
    """One pair with the texts that an LLM reads."""

    pair: ImagePair
    captions: tuple[str, str]
    question: str = ""  # empty if none was drafted
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownPairs:
    """Pairs of one benchmark."""

    study: Study  # for published pairs, what their study would be
    pairs: Mapping[str, KnownPair]  # by id, in their order


def pairs_of_study(folder: Path) -> KnownPairs:
    """Return the pairs of a study, drafted or not; errors as of :func:`~medtasks.curate.study.read_study`."""
    study = read_study(folder, StudyKind.PAIRS)
    images, drafts = read_images(folder), read_drafts(folder)
    pairs = {}
    for pair in read_pairs(folder):
        first, second = (images[name].text if name in images else "" for name in pair.images)
        draft = drafts.get(pair.pair_id)
        drafted = ("", ()) if draft is None else (draft.question, draft.options)
        pairs[pair.pair_id] = KnownPair(pair, (first, second), *drafted)
    return KnownPairs(study, pairs)


class _Published(BaseModel):
    """The fields used of a record of ``dataset.json``."""

    im_1_local: str = Field("", coerce_numbers_to_str=True)
    im_2_local: str = Field("", coerce_numbers_to_str=True)
    BiomedCLIP_sim: float
    DINO_sim: float
    cap_1: str
    cap_2: str
    question: str
    option_A: str
    option_B: str


def published_pairs(source: Path | None) -> KnownPairs:
    """Return the pairs of MediConfusion's published ``dataset.json``, in ``source`` or where it was prepared from.

    SourceError: the file is missing or malformed.
    """
    name = MEDICONFUSION.name
    try:
        folder = str(source or Manifest.read(dataset_folder(name)).source)
    except FileNotFoundError:
        raise SourceError(f"'{name}' is not prepared; give the folder of its dataset.json with --source") from None
    path = next((Path(folder, file) for file in _FILES if Path(folder, file).is_file()), None)
    if path is None:
        raise SourceError(
            f"{folder} is no folder with dataset.json, which holds captions and similarities of '{name}'; give its "
            f"folder with --source"
        )
    try:
        records = TypeAdapter(dict[str, _Published]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise SourceError(
            f"{path} is malformed ({problem_of(error)}); get it again from {MEDICONFUSION.source}"
        ) from None
    pairs = {}
    for pair_id, record in records.items():
        images = (record.im_1_local, record.im_2_local)
        pair = ImagePair(pair_id=pair_id, images=images, sim_med=record.BiomedCLIP_sim, sim_gen=record.DINO_sim)
        options = (record.option_A, record.option_B)
        pairs[pair_id] = KnownPair(pair, (record.cap_1, record.cap_2), record.question, options)
    return KnownPairs(Study(name=name, kind=StudyKind.PAIRS, access=MEDICONFUSION.access, source=str(path)), pairs)


def write_failure_modes(benchmark: KnownPairs, llm: Judge, path: Path) -> Counter[DraftOutcome]:
    """Ask about all pairs with a question, 100 at a time, and write the replies; count the outcomes.

    The LLM's cache keeps replies, so that a later run sends only the requests that failed. MedTasksError: no pair has a
    question, every request failed, or the file cannot be written.
    """
    name, pairs = benchmark.study.name, [pair for pair in benchmark.pairs.values() if pair.question]
    if not pairs:
        raise MedTasksError(f"no pair of '{name}' has a question; draft some with 'medtasks curate draft'")
    parts = [pairs[start : start + PAIRS_PER_REQUEST] for start in range(0, len(pairs), PAIRS_PER_REQUEST)]
    prompt = prompts_in(PROMPTS)["failure_modes"]
    requests = []
    for part in parts:
        blocks = []
        for number, pair in enumerate(part):
            options = [f"({letter}) {option}" for letter, option in zip("AB", pair.options, strict=True)]
            captions = {f"**IMAGE {image} CAPTION**": one_line(text) for image, text in enumerate(pair.captions, 1)}
            question = " ".join([one_line(pair.question), *options])
            blocks.append({"Pair 0": f"Pair {number}", **captions, "**QUESTION**": question})
        requests.append(prompt.with_blocks(blocks))
    with ThreadPoolExecutor(llm.settings.concurrency) as workers:
        replies = list(workers.map(lambda request: ask(llm, prompt, request, free_text), requests))
    counts = Counter(reply.outcome for reply in replies)
    if not counts[DraftOutcome.DRAFTED]:
        raise MedTasksError(f"the LLM named no failure modes: {replies[-1].reason}; nothing was written")
    heading = f"Drafted by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
    texts = [f"# Failure modes of {name}\n\n{heading}"]
    for part, reply in zip(parts, replies, strict=True):
        sent = ", ".join(f"{number}: {item.pair.pair_id}" for number, item in enumerate(part))
        texts.append(f"## {len(part)} pairs, {part[0].pair.pair_id} to {part[-1].pair.pair_id}")
        texts.append(reply.value or f"No reply: {reply.reason}.")
        texts.append(f"Pairs by their number in the prompt: {sent}")
    write_private(path, "\n\n".join(texts) + "\n")
    return counts
