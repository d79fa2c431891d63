"""Replies of another kit's file by sample, with counts of what was matched and what was not."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from medtasks.data.privacy import digest
from medtasks.data.samples import Documents
from medtasks.families.family import Reply
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_matching import BY_QUESTION_ALONE, RowMatch, match_each
from medtasks.runs.foreign.sample_index import SampleIndex
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile

TWO_REPLIES = "different replies to one sample"
_LACKS = ("empty", "failed", "missing", "ambiguous")


# Sentences on numbers of rows, by the name of the count.
_COUNTED = {
    "duplicates": "Rows that repeat a reply, counted once",
    "options_not_compared": "Rows without options, whose order could not be compared",
    "reasoning": "Replies with thinking in a field of its own, which only rules for thinking read",
    "cut": "Replies that end at a length limit",
}
_SHOWN_ROWS = 3
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class MatchedReplies:
    """Replies of a file by sample.

    Attributes:
        file: The file.
        runs: Replies by document id, one mapping per run that the file holds of each question.
        statuses: By document id: ``matched``, ``empty``, ``failed``, ``ambiguous`` or ``missing``.
        matches: What was found for each row.
        duplicates: Number of rows that repeat an earlier reply.
        is_private: Whether no text of the file may be shown.
    """

    file: ForeignFile
    runs: tuple[Mapping[str, Reply], ...]
    statuses: Mapping[str, str]
    matches: Sequence[RowMatch]
    duplicates: int
    is_private: bool

    @property
    def steps(self) -> Counter[str]:
        """Number of matched rows by step."""
        return Counter(match.step for match in self.matches if not match.why)

    @property
    def unmatched_rows(self) -> list[RowMatch]:
        """Rows that answer no sample."""
        return [match for match in self.matches if not match.samples]

    @property
    def ambiguous(self) -> list[RowMatch]:
        """Rows of which the sample or its reply is unknown."""
        return [match for match in self.matches if match.samples and match.why]

    @property
    def counts(self) -> dict[str, Any]:
        """Counts for JSON."""
        by_status = Counter(self.statuses.values())
        counts: dict[str, Any] = {"kit": self.file.kit, "reply_column": self.file.reply_column}
        if len(self.runs) > 1:
            counts["runs"] = len(self.runs)
        unmatched_rows = [match.row.number for match in self.unmatched_rows]
        ambiguous_rows = [match.row.number for match in self.ambiguous]
        not_compared = sum(match.step.startswith(BY_QUESTION_ALONE) for match in self.matches)
        return counts | {
            "rows": len(self.file.rows),
            "samples": len(self.statuses),
            "matched": by_status["matched"] + by_status["empty"] + by_status["failed"],
            "matched_by": dict(self.steps),
            "empty": by_status["empty"],
            "failed": by_status["failed"],
            "missing": by_status["missing"],
            "duplicates": self.duplicates,
            "unmatched": len(unmatched_rows),
            "unmatched_rows": unmatched_rows,
            "ambiguous": len(ambiguous_rows),
            "ambiguous_rows": ambiguous_rows,
            "ambiguous_samples": by_status["ambiguous"],
            "options_not_compared": not_compared,
            "reasoning": sum(bool(row.reasoning) for row in self.file.rows),
            "cut": sum(row.is_cut for row in self.file.rows),
        }

    @property
    def fits(self) -> bool:
        """Whether the file answers this task: half of its rows, or half of the samples."""
        missing = list(self.statuses.values()).count("missing")
        is_half_of_rows = 2 * len(self.unmatched_rows) <= len(self.file.rows)
        is_half_of_samples = 2 * missing <= len(self.statuses)
        return any(self.runs) and (is_half_of_rows or is_half_of_samples)

    def sentences(self) -> Iterator[str]:
        """Yield the facts that a reader of the scores has to know, one sentence each."""
        file = self.file
        counts = self.counts
        prompts = "the prompts that were asked there, not of ours"
        if file.has_our_prompts:
            prompts = "our prompts"
        yield f"Replies: '{file.reply_column}' ({file.kit}). Scores are those of {prompts}, under our rules."
        yield self._describe_samples(counts)
        for name, rows in (
            ("Rows of no sample", self.unmatched_rows),
            ("Ambiguous rows", self.ambiguous),
        ):
            if rows:
                yield f"{name}, left out: {len(rows)} of {counts['rows']}. {self.describe(rows)}."
        for key, sentence in _COUNTED.items():
            if counts[key]:
                yield f"{sentence}: {counts[key]}."
        yield from file.notes

    def _describe_samples(self, counts: Mapping[str, Any]) -> str:
        """Return the sentence on matched samples, how their rows were matched, and samples that lack a reply."""
        steps = ", ".join(f"{number} by {step}" for step, number in self.steps.items())
        lacks = Counter(self.statuses.values())
        lacking = ", ".join(f"{lacks[name]} {name}" for name in _LACKS if lacks[name])
        of_runs = f" in {len(self.runs)} runs" if len(self.runs) > 1 else ""
        return (
            f"Matched: {counts['matched']} of {counts['samples']} samples{of_runs} (rows: {steps or 'none'}); "
            f"{lacking or 'none empty, failed or missing'}."
        )

    def describe(self, matches: Sequence[RowMatch]) -> str:
        """Describe rows by cause, and the first of each by number and text. That of credentialed data is hashed."""
        by_cause: dict[str, list[ForeignRow]] = {}
        for match in matches:
            by_cause.setdefault(match.why, []).append(match.row)
        descriptions = []
        for why, rows in by_cause.items():
            shown_rows = ", ".join(map(self._describe_row, rows[:_SHOWN_ROWS]))
            more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
            descriptions.append(f"{why} ({len(rows)}): {shown_rows}{more}")
        return "; ".join(descriptions)

    def _describe_row(self, row: ForeignRow) -> str:
        text = " ".join((row.question or row.prompt or row.identifier or "").split())
        excerpt = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        if self.is_private:
            excerpt = f"sha256 {digest(text)}"
        return f"row {row.number} ({excerpt})"


def match_rows(
    file: ForeignFile,
    documents: Documents,
    task: TaskFile,
) -> MatchedReplies:
    """Match the rows of a file to the samples of a task, see docs/running.md.

    Args:
        file: The rows.
        documents: All documents of the task, at least one.
        task: The task.

    Raises:
        RepliesError: Ids in the file are bare numbers, which could count any rows.
    """
    matches = match_each(file, SampleIndex(documents))
    ids = [str(document["doc_id"]) for document in documents]
    statuses = dict.fromkeys(ids, "missing")
    for number in _undecided_samples(matches):
        statuses[ids[number]] = "ambiguous"
    repeats = sorted({row.repeat or 0 for row in file.rows})
    runs: dict[int, dict[str, Reply]] = {repeat: {} for repeat in repeats}
    duplicates = 0
    by_sample: dict[tuple[int, int], list[RowMatch]] = {}  # rows of each sample and run
    for match in matches:
        if len(match.samples) == 1:
            sample = (match.samples[0], match.row.repeat or 0)
            by_sample.setdefault(sample, []).append(match)
    for (number, repeat), of_sample in sorted(by_sample.items()):
        doc_id = ids[number]
        row = _only_reply(of_sample)
        if statuses[doc_id] in ("missing", "ambiguous"):  # of several runs the first counts
            statuses[doc_id] = _status(row)
        if row is not None:
            runs[repeat][doc_id] = _reply_of(row)
            duplicates += len(of_sample) - 1
    return MatchedReplies(
        file=file,
        runs=tuple(runs.values()),
        statuses=statuses,
        matches=matches,
        duplicates=duplicates,
        is_private=is_private_task(task, documents),
    )


def _undecided_samples(matches: Sequence[RowMatch]) -> Iterator[int]:
    """Yield the samples of rows that fit several. Rows with the same texts share one list."""
    several = {id(match.samples): match.samples for match in matches if len(match.samples) > 1}
    return chain.from_iterable(several.values())


def _only_reply(matches: Sequence[RowMatch]) -> ForeignRow | None:
    """Return the row with the one reply of several rows, None if they differ. A failure gives way to a reply."""
    rows = [match.row for match in matches]
    answered = [row for row in rows if row.reply is not None]
    replies = {(row.reply or "").replace("\r\n", "\n") for row in answered}
    if len(replies) > 1:
        for match in matches:
            match.why = TWO_REPLIES
        return None
    return (answered or rows)[0]


def _reply_of(row: ForeignRow) -> Reply:
    if row.reply is None:
        return Reply.of_text(None)
    return Reply(text=row.reply, cut=row.is_cut, reasoning=row.reasoning)


def _status(row: ForeignRow | None) -> str:
    if row is None:
        return "ambiguous"
    if row.reply is None:
        return "failed"
    return "matched" if row.reply else "empty"
