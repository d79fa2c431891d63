"""Drafts of an LLM: its prompts and requests, and the journal of its replies, so that no request is sent twice.

A *request* is for one image or pair: it ends with questions, or with the reason why there are none. Requests that the
LLM answered are final; those that failed at the endpoint are sent again by the next run. The modules that draft
questions build their requests with :func:`job_of` and send them with :func:`draft_all`.

The prompts are in TOML files of this package: those of the papers letter by letter, and corrected wordings, with the
marks of the paper (``**CAPTION OF IMAGE 1**``, ``{report}``) for the texts of an image or pair. ``MEDTASKS_JUDGE_*``
names the endpoint, as for judges. The published prompts do not fence off captions. A caption is therefore sent as one
line, and not at all if it seems to give orders or to bring a draft of its own.
"""

import enum
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import filelock
from loguru import logger
from tqdm import tqdm

from medtasks.curate.study import (
    DRAFTS,
    Study,
    StudyKind,
    StudyRecord,
    pairs_by_id,
    read_images,
    read_lines,
    write_lines,
)
from medtasks.errors import MedTasksError
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.home import append_whole, packaged_facts
from medtasks.judges.judge_client import (
    BAD_FORMAT,
    MAX_REQUESTS,
    Judge,
    JudgeRole,
    JudgeVerdict,
    VerdictCache,
    check_access,
    default_cache_folder,
    settings_from_environment,
)
from medtasks.net.journal import digest_of

T = TypeVar("T")

LONGEST = 10_000
"""Most characters of a question, option or answer; longer ones come from a model that broke."""
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:very )?sorry|sorry[,.]|i apologi[sz]e|unfortunately,? i|as an ai\b"
    r"|i (?:can(?:no|['’])t|am unable|am not able|won['’]?t|must decline))",
    re.IGNORECASE,
)
_DRAFTING = JudgeRole(
    "LLM",
    "A request got no usable reply from the LLM: {}. Further ones of this kind are not reported.",
    "Nothing more is asked for in this run because {} requests in a row failed: {}. Run the same command again to go "
    "on.",
    f"--max-requests ({MAX_REQUESTS})",
)


class DraftOutcome(enum.StrEnum):
    """Outcome of a request or of one draft."""

    DRAFTED = "drafted"
    REJECTED = "rejected"  # the draft breaks a rule for questions of a benchmark
    REFUSED = "refused"  # the LLM refused to draft
    MALFORMED = "malformed"  # no reply could be read, also when asked again
    FAILED = "failed"  # the endpoint did not answer; asked again by the next run
    # Not asked yet, and in no journal: the limit of requests was used up, for example.
    NOT_ASKED = "not asked"
    SKIPPED = "skipped"  # not asked at all: the caption is too short, for example


class Draft(StudyRecord):
    """One question as the LLM drafted it."""

    item_id: str
    images: tuple[str, ...]  # ids: two of a pair, else one
    question: str
    options: tuple[str, ...] = ()  # texts without letters; none for an open question
    answers: tuple[str, ...]  # one per image: letter of an option, or a text
    outcome: DraftOutcome = DraftOutcome.DRAFTED  # DRAFTED or REJECTED
    reason: str = ""  # why it was rejected, one phrase without text of the draft
    categories: tuple[tuple[str, ...], ...] = ()  # per image; empty without a request for them
    # Anatomy, measurement, symptom or technique; None for questions without a type.
    hallucination: str | None = None
    components: Mapping[str, tuple[str, ...]] | None = None  # findings of a report, by aspect

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of what a reviewer judges: images, wording, answers."""
        return digest_of(self.images, self.question, self.options, self.answers)[:16]


Drafts = Mapping[str, Draft]
"""Drafts by item id."""


class JournalLine(StudyRecord):
    """Result of one request: a line of the journal."""

    request: str  # id of the image or pair; ``categories/ID`` for the categories of an image
    asked: str  # digest of prompts and model
    outcome: DraftOutcome
    reason: str = ""  # one phrase without sample text
    llm: str = ""  # model and temperature
    prompt: str = ""  # name and version of the prompt
    categories: tuple[str, ...] = ()  # categories of an image, if the request was for them
    drafts: tuple[Draft, ...] = ()


Job = tuple[str, Callable[[], JournalLine]]
"""Digest of prompts and model of a request, and the call that sends it."""


def read_journal_lines(folder: Path) -> dict[str, JournalLine]:
    """Return the last line of each request of a study, in the order of first mention."""
    return {line.request: line for line in read_lines(folder / DRAFTS, JournalLine)}


def read_drafts(folder: Path) -> dict[str, Draft]:
    """Return the questions of a study that no rule rejected, by item id, with the categories of their images.

    Args:
        folder: Folder of the study. Without a journal of drafts there are none.
    """
    drafts = {}
    categories = {}
    for request, line in read_journal_lines(folder).items():
        if line.categories:
            categories[request] = line.categories
        for draft in line.drafts:
            drafts[draft.item_id] = draft
    drafts = {
        item: draft for item, draft in drafts.items() if draft.outcome is DraftOutcome.DRAFTED
    }
    if not categories:
        return drafts
    for item, draft in drafts.items():
        areas = tuple(categories.get(f"categories/{image}", ()) for image in draft.images)
        drafts[item] = draft.model_copy(update={"categories": areas})
    return drafts


def draft_all(folder: Path, jobs: Mapping[str, Job], threads: int) -> Counter[DraftOutcome]:
    """Do the jobs that the journal of a study does not hold yet, several at a time, and count all outcomes.

    Drafts of another LLM or prompt stay, with a warning: reviews may rest on them. An error in a job is raised once
    those under way are on disk.

    Args:
        folder: Folder of the study.
        jobs: Jobs by request, in the order that the journal gets.
        threads: Number of requests under way at a time.

    Raises:
        MedTasksError: The journal cannot be written, or another process drafts.
    """
    path = folder / DRAFTS
    try:
        lock = filelock.FileLock(folder / ".drafts.lock", mode=0o600, blocking=False).acquire()
    except filelock.Timeout:
        raise MedTasksError(
            f"another process drafts questions in {folder}; run this again when it has ended"
        ) from None
    with lock:
        _remove_torn_line(path)
        lines = read_journal_lines(folder)
        counts = Counter[DraftOutcome]()
        todo = []
        others = 0
        for request, (digest, job) in jobs.items():
            line = lines.get(request)
            if line is None or not _is_final(line, digest):
                todo.append(job)
                continue
            counts[line.outcome] += 1
            if line.asked != digest:
                others += 1
        if others:
            logger.warning(
                "{} requests were drafted by another LLM or prompt and stay as they are; to draft all anew, move "
                "{} away.",
                others,
                path,
            )
        _run(path, todo, threads, counts)
        lines = read_journal_lines(folder)
        # The journal gets the order of the jobs, so that equal studies are read and published equally.
        ranks = {request: rank for rank, request in enumerate(jobs)}
        ordered = sorted(lines, key=lambda request: ranks.get(request, -1))
        if ordered != list(lines):
            write_lines(path, map(lines.__getitem__, ordered))
    return counts


def _remove_torn_line(path: Path) -> None:
    """Cut the last line of a journal if it has no end: the next line, joined to it, could not be read."""
    if not path.is_file():
        return
    written = path.read_bytes()
    if not written.endswith(b"\n"):
        os.truncate(path, written.rfind(b"\n") + 1)


def _is_final(line: JournalLine, digest: str) -> bool:
    """Return whether a request is not sent again: it has drafts, or the LLM and prompts of ``digest`` had an answer."""
    if line.drafts:
        return True
    return line.asked == digest and line.outcome is not DraftOutcome.FAILED


def _run(
    path: Path,
    jobs: Sequence[Callable[[], JournalLine]],
    threads: int,
    counts: Counter[DraftOutcome],
) -> None:
    """Do jobs on several threads, append their results to the journal at ``path``, and count them in ``counts``.

    Raises:
        MedTasksError: The journal cannot be written. Jobs that have not begun are dropped then.
    """
    with ThreadPoolExecutor(threads) as workers:
        running = list(map(workers.submit, jobs))
        try:
            for done in tqdm(
                as_completed(running), "Drafting", len(running), unit="request", disable=None
            ):
                line = done.result()
                counts[line.outcome] += 1
                if line.outcome is DraftOutcome.NOT_ASKED:
                    continue
                try:
                    append_whole(path, line.model_dump_json().encode() + b"\n", durable=True)
                except OSError as error:
                    raise MedTasksError(
                        f"cannot write {path}: {error.strerror or error}; make room and run it again, nothing that is "
                        f"in it is asked for again"
                    ) from error
        except KeyboardInterrupt:
            logger.warning("Finishing the requests that are under way; their replies are kept.")
            raise
        finally:
            for future in running:
                future.cancel()


def tally(folder: Path, kind: StudyKind) -> Counter[tuple[str, str, str]]:
    """Count all requests, questions and categories of a study.

    Args:
        folder: Folder of the study.
        kind: Kind of the study. It decides whether a request is for a pair or for an image.

    Returns:
        Numbers by (``pairs`` or ``images``, ``questions`` or ``categories``; outcome; reason).
    """
    if kind is StudyKind.PAIRS:
        unit = "pairs"
        requests = set(pairs_by_id(folder))
    else:
        unit = "images"
        requests = set(read_images(folder))
    lines = read_journal_lines(folder)
    counts = Counter({(unit, str(DraftOutcome.NOT_ASKED), ""): len(requests - lines.keys())})
    for line in lines.values():
        subject = unit if line.request in requests else "categories"
        counts[subject, line.outcome, line.reason] += 1
        counts.update(("questions", draft.outcome, draft.reason) for draft in line.drafts)
    return +counts


@dataclass(frozen=True)
class DraftingPrompt:
    """One prompt with its marks."""

    name: str
    version: int  # raised when the texts change
    source: str  # publication that the prompt is from
    system: str
    user: str
    # Part that is repeated for each of several images or pairs; empty without one.
    block: str = ""

    @property
    def label(self) -> str:
        """Name and version, as a journal records them."""
        return f"{self.name} v{self.version}"


def fill_marks(text: str, values: Mapping[str, str]) -> str:
    """Fill the marks that a part of a prompt has.

    Example:
        >>> fill_marks("Report: {report}", {"{report}": "Clear lungs.", "{notes}": "none"})
        'Report: Clear lungs.'
    """
    marks = "|".join(re.escape(mark) for mark in sorted(values, key=len, reverse=True))
    return re.sub(marks, lambda match: values[match[0]], text)


@cache
def prompts_in(file: str) -> Mapping[str, DraftingPrompt]:
    """Return the prompts of ``<file>.toml`` of this package, by name.

    Example:
        >>> prompts_in("pair_prompts")["question"].label
        'question v1'
    """
    return {
        name: DraftingPrompt(name, **facts)
        for name, facts in packaged_facts(__package__, file).items()
    }


def one_line(text: str) -> str:
    r"""Join a caption into one line, as prompts show it and rules count it.

    Example:
        >>> one_line(" Axial CT\nof the  chest ")
        'Axial CT of the chest'
    """
    return " ".join(text.split())


def refuses(reply: str) -> bool:
    """Return whether a reply begins with a refusal, after its reasoning.

    Example:
        >>> refuses("I'm sorry, but I cannot help with this."), refuses("Question: ...")
        (True, False)
    """
    return bool(_REFUSAL.match(without_thoughts(reply) or ""))


def free_text(reply: str) -> str | None:
    r"""Return a reply without reasoning, or None for an empty one and for a refusal.

    Example:
        >>> free_text("<think>Two lungs.</think> Chest\n"), free_text("I cannot help with this.")
        ('Chest', None)
    """
    text = (without_thoughts(reply) or "").strip()
    return None if not text or refuses(text) else text


def ask(
    llm: Judge,
    prompt: DraftingPrompt,
    user: str,
    read: Callable[[str], T | None],
) -> tuple[T | None, DraftOutcome, str]:
    """Send one prompt, and send it again if the reply can neither be read nor refuses. Nothing is raised.

    Args:
        llm: The LLM, with its cache and its limit of requests.
        prompt: The prompt, of which the ``system`` part is sent as it is.
        user: The ``user`` part with its marks filled.
        read: Returns the value of a reply, or None for one that it cannot read.

    Returns:
        The value, its outcome, and a reason without sample text. The value is None unless it was drafted.
    """

    def read_or_refusal(reply: str) -> tuple[T | None] | None:
        """Return the value of a reply in a tuple, ``(None,)`` for a refusal, None for a reply to ask for again."""
        # Half a surrogate pair could not be written down.
        text = reply.encode(errors="replace").decode()
        value = read(text)
        if value is None and not refuses(text):
            return None
        return (value,)

    verdict: JudgeVerdict[tuple[T | None]] = llm.ask(
        prompt.system, user, read_or_refusal, prompt_version=prompt.version
    )
    if verdict.value is not None:
        (value,) = verdict.value
        if value is None:
            return None, DraftOutcome.REFUSED, "the LLM would not"
        return value, DraftOutcome.DRAFTED, ""
    outcome = DraftOutcome.MALFORMED if verdict.failure == BAD_FORMAT else DraftOutcome.FAILED
    if not verdict.sent:
        outcome = DraftOutcome.NOT_ASKED
    return None, outcome, verdict.failure or ""


def job_of(
    llm: Judge,
    request: str,
    prompt: DraftingPrompt,
    values: Mapping[str, str],
    read: Callable[[str], Mapping[str, Any] | None],
    *,
    skip: str = "",
    first: tuple[DraftingPrompt, str] | None = None,
) -> Job:
    """Return the job that sends a prompt.

    Args:
        llm: The LLM to send it to.
        request: Id of the request in the journal.
        prompt: The prompt that asks for questions.
        values: Texts for the marks of the prompts.
        read: Turns a reply into fields of the request's :class:`JournalLine`, or None if it cannot be read.
        skip: Reason to send nothing; empty to send the prompt.
        first: A prompt to send before, and the mark of ``prompt`` that its reply fills. None if ``prompt`` is the
            only one.
    """
    label = llm.settings.label
    without_first = dict(values)
    if first:
        first_prompt, mark = first
        without_first[mark] = ""
    user = fill_marks(prompt.user, without_first)
    digest = digest_of(prompt.label, prompt.system, user, label)[:32]
    if first:
        first_user = fill_marks(first_prompt.user, values)
        of_first = digest_of(first_prompt.label, first_prompt.system, first_user, label)[:32]
        digest = digest_of(digest, of_first)[:32]
    line = partial(JournalLine, request=request, asked=digest, llm=label, prompt=prompt.label)
    if skip:
        return digest, partial(line, outcome=DraftOutcome.SKIPPED, reason=skip)

    def job() -> JournalLine:
        """Send the first prompt, if there is one, then the prompt, and return the line of the journal."""
        marks = dict(values)
        if first:
            reply, outcome, reason = ask(llm, first_prompt, first_user, free_text)
            if reply is None:
                return line(outcome=outcome, reason=reason)
            marks[mark] = reply
        fields, outcome, reason = ask(llm, prompt, fill_marks(prompt.user, marks), read)
        return line(outcome=outcome, reason=reason, **(fields or {}))

    return digest, job


def open_llm(study: Study, max_requests: int | None = None) -> Judge:
    """Return the LLM that the environment names.

    Args:
        study: Decides by its access level whether its texts may be sent there.
        max_requests: Replaces the environment's limit of requests, which None keeps.

    Raises:
        MedTasksError: No LLM is set, or it must not see the texts of the study.
    """
    settings = settings_from_environment(what="drafting needs an LLM")
    check_access(settings, study.access, study.name)
    if max_requests is not None:
        settings = replace(settings, max_requests=max_requests)
    return Judge(settings, VerdictCache(default_cache_folder()), role=_DRAFTING)
