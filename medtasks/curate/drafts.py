"""Drafts of an LLM: its prompts and requests, and the journal of its replies, so that no request is sent twice.

A *request* is for one image or pair: it ends with questions, or with the reason why there are none. Requests that the
LLM answered are final; those that failed at the endpoint are sent again by the next run.

The prompts are in TOML files of this package: those of the papers letter by letter, and corrected wordings, with the
marks of the paper (``**CAPTION OF IMAGE 1**``, ``{report}``) for the texts of an image or pair. ``MEDTASKS_JUDGE_*``
names the endpoint, as for judges. The published prompts do not fence off captions. A caption is therefore sent as one
line, and not at all if it seems to give orders or to bring a draft of its own.
"""

import enum
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
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
    read_images,
    read_lines,
    read_pairs,
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
    REFUSED = "refused"  # the LLM would not
    MALFORMED = "malformed"  # no reply could be read, also when asked again
    FAILED = "failed"  # the endpoint did not answer; asked again by the next run
    NOT_ASKED = (
        "not asked"  # yet, and in no journal; the limit of requests was used up, for example
    )
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
    hallucination: str | None = None  # anatomy, measurement, symptom or technique
    components: Mapping[str, tuple[str, ...]] | None = None  # of the report, by aspect

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of what a reviewer judges: images, wording, answers."""
        return digest_of(self.images, self.question, self.options, self.answers)[:16]


class Drafted(StudyRecord):
    """Result of one request: a line of the journal."""

    request: str  # id of the image or pair; ``categories/ID`` for the categories of an image
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


def read_drafts(folder: Path) -> dict[str, Draft]:
    """Return the questions of a study that no rule rejected, by item id, with the categories of their images."""
    lines = read_drafted(folder)
    drafts = {draft.item_id: draft for line in lines.values() for draft in line.drafts}
    drafts = {
        item: draft for item, draft in drafts.items() if draft.outcome is DraftOutcome.DRAFTED
    }
    categories = {request: line.categories for request, line in lines.items() if line.categories}
    for item, draft in drafts.items() if categories else ():
        areas = tuple(categories.get(f"categories/{image}", ()) for image in draft.images)
        drafts[item] = draft.model_copy(update={"categories": areas})
    return drafts


def draft_all(folder: Path, jobs: Mapping[str, Job], threads: int) -> Counter[DraftOutcome]:
    """Do the jobs that the journal of a study does not hold yet, several at a time, and count all outcomes.

    Drafts of another LLM or prompt stay, with a warning: reviews may rest on them. An error in a job is raised once
    those under way are on disk. MedTasksError: the journal cannot be written, or another process drafts.
    """
    path = folder / DRAFTS
    counts: Counter[DraftOutcome] = Counter()
    todo, others = {}, 0
    try:
        with filelock.FileLock(folder / ".drafts.lock", mode=0o600, blocking=False):
            if path.is_file() and not (written := path.read_bytes()).endswith(b"\n"):
                os.truncate(
                    path, written.rfind(b"\n") + 1
                )  # a torn line would make the next one unreadable
            lines = read_drafted(folder)
            for request, (digest, job) in jobs.items():
                line = lines.get(request)
                if line and (
                    line.drafts
                    or (line.asked == digest and line.outcome is not DraftOutcome.FAILED)
                ):
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
            _run(path, todo, threads, counts)
            lines = read_drafted(folder)
            # In the order of the jobs, so that equal studies are read and published equally.
            ordered = {request: line for request, line in lines.items() if request not in jobs}
            ordered |= {request: lines[request] for request in jobs if request in lines}
            if list(ordered) != list(lines):
                write_lines(path, ordered.values())
    except filelock.Timeout:
        raise MedTasksError(
            f"another process drafts questions in {folder}; run this again when it has ended"
        ) from None
    return counts


def _run(
    path: Path,
    jobs: Mapping[str, Callable[[], Drafted]],
    threads: int,
    counts: Counter[DraftOutcome],
) -> None:
    with ThreadPoolExecutor(threads) as workers:
        running = [workers.submit(job) for job in jobs.values()]
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
    """Count all pairs (or images, where each is one request), questions and categories by these, outcome and reason."""
    is_pairs = kind is StudyKind.PAIRS
    requests = (
        {pair.pair_id for pair in read_pairs(folder)} if is_pairs else set(read_images(folder))
    )
    of, lines = "pairs" if is_pairs else "images", read_drafted(folder)
    counts = Counter({(of, str(DraftOutcome.NOT_ASKED), ""): len(requests - lines.keys())})
    for line in lines.values():
        counts[of if line.request in requests else "categories", line.outcome, line.reason] += 1
        counts.update(("questions", draft.outcome, draft.reason) for draft in line.drafts)
    return +counts


@dataclass(frozen=True)
class DraftingPrompt:
    """One prompt with its marks."""

    name: str
    version: int  # raised when the texts change
    source: str  # publication
    system: str
    user: str
    block: str = ""  # repeated for each of several images or pairs

    @property
    def label(self) -> str:
        """Name and version, as a journal records them."""
        return f"{self.name} v{self.version}"


def fill_marks(text: str, values: Mapping[str, str]) -> str:
    """Fill the marks that a part of a prompt has."""
    marks = "|".join(re.escape(mark) for mark in sorted(values, key=len, reverse=True))
    return re.sub(marks, lambda match: values[match[0]], text)


@cache
def prompts_in(file: str) -> Mapping[str, DraftingPrompt]:
    """Return the prompts of ``<file>.toml`` of this package by name."""
    return {
        name: DraftingPrompt(name, **facts)
        for name, facts in packaged_facts(__package__, file).items()
    }


def one_line(text: str) -> str:
    """Join a caption into one line, as prompts show it and rules count it."""
    return " ".join(text.split())


def refuses(reply: str) -> bool:
    """Return whether a reply begins with a refusal, after its reasoning."""
    return bool(_REFUSAL.match(without_thoughts(reply) or ""))


def free_text(reply: str) -> str | None:
    """Return a reply without reasoning; None for an empty one or a refusal."""
    text = (without_thoughts(reply) or "").strip()
    return None if not text or refuses(text) else text


def ask(
    llm: Judge, prompt: DraftingPrompt, user: str, read: Callable[[str], T | None]
) -> tuple[T | None, DraftOutcome, str]:
    """Ask with a filled ``user`` part for a reply that ``read`` can read, again if it is no refusal; nothing raises.

    Returns its value, not None exactly if it was drafted, its outcome and without a value the reason: a phrase without
    sample text.
    """

    def read_or_refused(reply: str) -> tuple[T | None] | None:
        text = reply.encode(
            errors="replace"
        ).decode()  # half a surrogate pair could not be written down
        value = read(text)
        return None if value is None and not refuses(text) else (value,)

    verdict: JudgeVerdict[tuple[T | None]] = llm.ask(
        prompt.system, user, read_or_refused, prompt_version=prompt.version
    )
    if verdict.value is not None:
        (value,) = verdict.value
        if value is None:
            return None, DraftOutcome.REFUSED, "the LLM would not"
        return value, DraftOutcome.DRAFTED, ""
    outcome = DraftOutcome.MALFORMED if verdict.failure == BAD_FORMAT else DraftOutcome.FAILED
    return None, outcome if verdict.sent else DraftOutcome.NOT_ASKED, verdict.failure or ""


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
    """Return the job that sends a prompt; ``read`` turns the reply into fields of the request's journal line.

    ``skip`` is the reason to send nothing; ``first`` a prompt to send before, and the mark that its reply fills.
    """
    label = llm.settings.label
    user = fill_marks(prompt.user, {**values, **({first[1]: ""} if first else {})})
    digest = digest_of(prompt.label, prompt.system, user, label)[:32]
    if first:
        first_user = fill_marks(first[0].user, values)
        of_first = digest_of(first[0].label, first[0].system, first_user, label)[:32]
        digest = digest_of(digest, of_first)[:32]
    about: dict[str, Any] = {
        "request": request,
        "asked": digest,
        "llm": label,
        "prompt": prompt.label,
    }

    def job() -> Drafted:
        marks = dict(values)
        if first:
            reply, outcome, reason = ask(llm, first[0], first_user, free_text)
            if reply is None:
                return Drafted(outcome=outcome, reason=reason, **about)
            marks[first[1]] = reply
        fields, outcome, reason = ask(llm, prompt, fill_marks(prompt.user, marks), read)
        return Drafted(outcome=outcome, reason=reason, **about, **(fields or {}))

    return digest, partial(
        Drafted, outcome=DraftOutcome.SKIPPED, reason=skip, **about
    ) if skip else job


def open_llm(study: Study, max_requests: int | None = None) -> Judge:
    """Return the LLM that the environment names if it may see a study's texts; a MedTasksError says why not.

    ``max_requests`` replaces that of the environment.
    """
    settings = settings_from_environment(what="drafting needs an LLM")
    check_access(settings, study.access, study.name)
    if max_requests is not None:
        settings = replace(settings, max_requests=max_requests)
    return Judge(settings, VerdictCache(default_cache_folder()), role=_DRAFTING)
