"""Journal of the LLM's drafts, written as they come, so that no request is sent twice.

A *request* is for one image or pair: it ends with questions, or with the reason why there are none. Requests that the
LLM answered are final; those that failed at the endpoint are sent again by the next run.
"""

import enum
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import filelock
from loguru import logger
from tqdm import tqdm

from medtasks.curate.study import DRAFTS, Record, StudyKind, read_images, read_lines, read_pairs, write_lines
from medtasks.errors import MedTasksError
from medtasks.home import append_whole
from medtasks.net.journal import digest_of

LONGEST = 10_000
"""Most characters of a question, option or answer; longer ones come from a model that broke."""


class DraftOutcome(enum.StrEnum):
    """Outcome of a request or of one draft."""

    DRAFTED = "drafted"
    REJECTED = "rejected"  # the draft breaks a rule for questions of a benchmark
    REFUSED = "refused"  # the LLM would not
    MALFORMED = "malformed"  # no reply could be read, also when asked again
    FAILED = "failed"  # the endpoint did not answer; asked again by the next run
    NOT_ASKED = "not asked"  # yet, and in no journal; the limit of requests was used up, for example
    SKIPPED = "skipped"  # not asked at all: the caption is too short, for example


class Draft(Record):
    """One question as the LLM drafted it."""

    item_id: str
    images: tuple[str, ...]  # ids: two of a pair, else one
    question: str
    options: tuple[str, ...] = ()  # texts without letters; none for an open question
    answers: tuple[str, ...]  # one per image: letter of an option, or a text
    outcome: DraftOutcome = DraftOutcome.DRAFTED  # DRAFTED or REJECTED
    reason: str = ""  # why it was rejected, one phrase without text of the draft
    categories: tuple[tuple[str, ...], ...] = ()  # per image; empty without a request for them
    hallucination: str | None = None  # anatomy, measurement, symptom or technique
    components: Mapping[str, tuple[str, ...]] | None = None  # of the report, by aspect

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of what a reviewer judges: images, wording, answers."""
        return digest_of(self.images, self.question, self.options, self.answers)[:16]


class Drafted(Record):
    """Result of one request: a line of the journal."""

    request: str  # id of the image or pair
    asked: str  # digest of prompts and model
    outcome: DraftOutcome
    reason: str = ""  # one phrase without sample text
    llm: str = ""  # model and temperature
    prompt: str = ""  # name and version of the prompt
    categories: tuple[str, ...] = ()  # of an image, if the request was for them
    drafts: tuple[Draft, ...] = ()


Job = tuple[str, Callable[[], Drafted]]
"""Digest of prompts and model of a request, and the call that sends it."""


def read_drafted(folder: Path) -> dict[str, Drafted]:
    """Return the last line of each request of a study, in the order of first mention."""
    return {line.request: line for line in read_lines(folder / DRAFTS, Drafted)}


def category_request(image_id: str) -> str:
    """Return the id of the request for the categories of an image."""
    return f"categories/{image_id}"


def read_drafts(folder: Path) -> dict[str, Draft]:
    """Return the questions of a study that no rule rejected, by item id, with the categories of their images."""
    lines = read_drafted(folder)
    drafts = {draft.item_id: draft for line in lines.values() for draft in line.drafts}
    drafts = {item: draft for item, draft in drafts.items() if draft.outcome is DraftOutcome.DRAFTED}
    categories = {request: line.categories for request, line in lines.items() if line.categories}
    for item, draft in drafts.items() if categories else ():
        areas = tuple(categories.get(category_request(image), ()) for image in draft.images)
        drafts[item] = draft.model_copy(update={"categories": areas})
    return drafts


def draft_all(folder: Path, jobs: Mapping[str, Job], threads: int) -> Counter[DraftOutcome]:
    """Do the jobs that the journal of a study does not hold yet, several at a time, and count all outcomes.

    Drafts of another LLM or prompt stay, with a warning: reviews may rest on them. At the end the journal is in the
    order of the jobs, so that equal studies are read and published equally. An error in a job is raised once those
    under way are on disk. MedTasksError: the journal cannot be written, or another process drafts.
    """
    path = folder / DRAFTS
    counts: Counter[DraftOutcome] = Counter()
    todo, others = {}, 0
    try:
        with filelock.FileLock(folder / ".drafts.lock", mode=0o600, blocking=False):
            if path.is_file() and not (written := path.read_bytes()).endswith(b"\n"):
                os.truncate(path, written.rfind(b"\n") + 1)  # a torn line would make the next one unreadable
            lines = read_drafted(folder)
            for request, (digest, job) in jobs.items():
                line = lines.get(request)
                if line and (line.drafts or (line.asked == digest and line.outcome is not DraftOutcome.FAILED)):
                    counts[line.outcome] += 1
                    others += line.asked != digest
                else:
                    todo[request] = job
            if others:
                logger.warning(
                    "{} requests were drafted by another LLM or prompt and stay as they are; to draft all anew, move "
                    "{} away.",
                    others,
                    path,
                )
            _run(folder, todo, threads, counts)
            lines = read_drafted(folder)
            ordered = {request: line for request, line in lines.items() if request not in jobs}
            ordered |= {request: lines[request] for request in jobs if request in lines}
            if list(ordered) != list(lines):
                write_lines(path, ordered.values())
    except filelock.Timeout:
        raise MedTasksError(f"another process drafts questions in {folder}; run this again when it has ended") from None
    return counts


def _run(folder: Path, jobs: Mapping[str, Callable[[], Drafted]], threads: int, counts: Counter[DraftOutcome]) -> None:
    """Do jobs in threads, and journal and count their lines as they come."""
    with ThreadPoolExecutor(threads) as workers:
        running = [workers.submit(job) for job in jobs.values()]
        try:
            for done in tqdm(as_completed(running), "Drafting", len(running), unit="request", disable=None):
                line = done.result()
                counts[line.outcome] += 1
                if line.outcome is not DraftOutcome.NOT_ASKED:
                    append_line(folder, line)
        except KeyboardInterrupt:
            logger.warning("Finishing the requests that are under way; their replies are kept.")
            raise
        finally:
            for future in running:
                future.cancel()


def append_line(folder: Path, line: Drafted) -> None:
    """Add a line to the journal of a study."""
    try:
        append_whole(folder / DRAFTS, line.model_dump_json().encode() + b"\n", durable=True)
    except OSError as error:
        raise MedTasksError(
            f"cannot write {folder / DRAFTS}: {error.strerror or error}; make room and run it again, nothing that is "
            f"in it is asked for again"
        ) from error


def tally(folder: Path, kind: StudyKind) -> Counter[tuple[str, str, str]]:
    """Count the pairs or images, questions and categories of a study by these, outcome and reason.

    The counts of pairs (or of images, where each is one request) add up to all that the study has.
    """
    is_pairs = kind is StudyKind.PAIRS
    requests = {pair.pair_id for pair in read_pairs(folder)} if is_pairs else set(read_images(folder))
    of, lines = "pairs" if is_pairs else "images", read_drafted(folder)
    counts = Counter({(of, str(DraftOutcome.NOT_ASKED), ""): len(requests - lines.keys())})
    for line in lines.values():
        counts[of if line.request in requests else "categories", line.outcome, line.reason] += 1
        counts.update(("questions", draft.outcome, draft.reason) for draft in line.drafts)
    return +counts


def check_not_all_failed(folder: Path, counts: Counter[DraftOutcome]) -> None:
    """Raise a MedTasksError with the first cause if every request that was sent failed."""
    others = counts.keys() - {DraftOutcome.FAILED, DraftOutcome.NOT_ASKED, DraftOutcome.SKIPPED}
    if counts[DraftOutcome.FAILED] and not others:
        cause = next(line.reason for line in read_drafted(folder).values() if line.outcome is DraftOutcome.FAILED)
        raise MedTasksError(f"every request that was sent failed: {cause}; fix that and run the same command again")
