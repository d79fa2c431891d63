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
_SHOWN_ROWS = 3
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class MatchedReplies:
    """Replies of a file by sample.

    Attributes:
        file: The file.
        runs: Replies by document id, one mapping per run that the file holds of each question.
        statuses: By document id: ``matched``, ``empty``, ``failed``, ``ambiguous`` or ``missing``.
        steps: Number of matched rows by step.
        duplicates: Number of rows that repeat an earlier reply.
        unmatched: Rows that answer no sample.
        ambiguous: Rows of which the sample or its reply is unknown.
        is_private: Whether no text of the file may be shown.
    """

    file: ForeignFile
    runs: tuple[Mapping[str, Reply], ...]
    statuses: Mapping[str, str]
    steps: Mapping[str, int]
    duplicates: int
    unmatched: tuple[RowMatch, ...]
    ambiguous: tuple[RowMatch, ...]
    is_private: bool

    @property
    def counts(self) -> dict[str, Any]:
        """Counts for JSON."""
        by_status = Counter(self.statuses.values())
        of_runs = {"runs": len(self.runs)} if len(self.runs) > 1 else {}
        return {
            "kit": self.file.kit,
            "reply_column": self.file.reply_column,
            **of_runs,
            "rows": len(self.file.rows),
            "samples": len(self.statuses),
            "matched": by_status["matched"] + by_status["empty"] + by_status["failed"],
            "matched_by": dict(self.steps),
            "empty": by_status["empty"],
            "failed": by_status["failed"],
            "missing": by_status["missing"],
            "duplicates": self.duplicates,
            "unmatched": len(self.unmatched),
            "unmatched_rows": [match.row.number for match in self.unmatched],
            "ambiguous": len(self.ambiguous),
            "ambiguous_rows": [match.row.number for match in self.ambiguous],
            "ambiguous_samples": by_status["ambiguous"],
            "cut": sum(row.is_cut for row in self.file.rows),
        }

    @property
    def fits(self) -> bool:
        """Whether the file answers this task: half of its rows, or half of the samples."""
        is_half_of_rows = 2 * len(self.unmatched) <= len(self.file.rows)
        is_half_of_samples = 2 * [*self.statuses.values()].count("missing") <= len(self.statuses)
        return any(self.runs) and (is_half_of_rows or is_half_of_samples)

    def sentences(self) -> Iterator[str]:
        """Yield what a reader of the scores has to know, one sentence each."""
        file = self.file
        counts = self.counts
        asked = "They answer our prompts." if file.has_our_prompts else "They answer prompts of its own, not ours."
        yield f"Replies: '{file.reply_column}' in a file of {file.kit}. {asked}"
        steps = ", ".join(f"{number} by {step}" for step, number in self.steps.items())
        lacks = [f"{counts[name]} {name}" for name in ("empty", "failed", "missing") if counts[name]]
        if counts["ambiguous_samples"]:
            lacks.append(f"{counts['ambiguous_samples']} ambiguous")
        of_runs = f" in {len(self.runs)} runs" if len(self.runs) > 1 else ""
        yield (
            f"Matched: {counts['matched']} of {counts['samples']} samples{of_runs} (rows: {steps or 'none'}); "
            f"{', '.join(lacks) or 'none empty, failed or missing'}."
        )
        if self.duplicates:
            yield f"Rows that repeat a reply, counted once: {self.duplicates} of {counts['rows']}."
        for name, rows in (("Rows of no sample", self.unmatched), ("Ambiguous rows", self.ambiguous)):
            if rows:
                yield f"{name}, left out: {len(rows)} of {counts['rows']}. {self.describe(rows)}."
        if BY_QUESTION_ALONE in self.steps:
            yield "The file lists no options, so that their order could not be compared."
        if thoughts := sum(bool(row.reasoning) for row in file.rows):
            yield f"Replies with thinking in a field of its own, which only rules for thinking read: {thoughts}."
        if counts["cut"]:
            yield f"Replies that end at a length limit: {counts['cut']}."
        yield from file.notes

    def describe(self, matches: Sequence[RowMatch]) -> str:
        """Describe rows by cause, and the first of each by number and text; that of credentialed data is hashed."""
        texts: dict[str, dict[int, str]] = {}
        for match in matches:
            row = match.row
            text = " ".join((row.question or row.prompt or row.identifier or "").split())
            texts.setdefault(match.why, {})[row.number] = text
        descriptions = []
        for why, of_rows in texts.items():
            rows = []
            for number, text in list(of_rows.items())[:_SHOWN_ROWS]:
                shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
                rows.append(f"row {number} ({f'sha256 {digest(text)}' if self.is_private else shown})")
            more = f" and {len(of_rows) - len(rows)} more" if len(of_rows) > len(rows) else ""
            descriptions.append(f"{len(of_rows)} {why}: {', '.join(rows)}{more}")
        return "; ".join(descriptions)


def match_rows(file: ForeignFile, documents: Documents, task: TaskFile) -> MatchedReplies:
    """Match the rows of a file to the samples of a task, see docs/running.md.

    Args:
        file: The rows.
        documents: All documents of the task, at least one.
        task: The task.

    Raises:
        RepliesError: Ids in the file are bare numbers, which could count any rows.
    """
    matches = match_each(file, SampleIndex(documents))
    by_sample: dict[int, dict[int, list[RowMatch]]] = {}
    for match in matches:
        if len(match.samples) == 1:
            by_sample.setdefault(match.samples[0], {}).setdefault(match.row.repeat or 0, []).append(match)
    runs: dict[int, dict[str, Reply]] = {repeat: {} for repeat in sorted({row.repeat or 0 for row in file.rows})}
    statuses = {str(document["doc_id"]): "missing" for document in documents}
    ids = list(statuses)
    duplicates = 0
    for number, by_repeat in by_sample.items():
        for repeat, of_sample in by_repeat.items():
            row = _only_reply([match.row for match in of_sample])
            if row is None:
                statuses[ids[number]] = "ambiguous"
                for match in of_sample:
                    match.why = TWO_REPLIES
                continue
            duplicates += len(of_sample) - 1
            runs[repeat][ids[number]] = _reply_of(row)
            if statuses[ids[number]] == "missing":
                statuses[ids[number]] = _status(row)
    several = {id(match.samples): match.samples for match in matches if len(match.samples) > 1}
    for number in chain.from_iterable(several.values()):  # rows with the same texts share one list
        if number not in by_sample:
            statuses[ids[number]] = "ambiguous"
    matched = [match for match in matches if match.samples and not match.why]
    return MatchedReplies(
        file=file,
        runs=tuple({doc_id: run[doc_id] for doc_id in ids if doc_id in run} for run in runs.values()),
        statuses=statuses,
        steps=Counter(match.step for match in matched),
        duplicates=duplicates,
        unmatched=tuple(match for match in matches if not match.samples),
        ambiguous=tuple(match for match in matches if match.samples and match.why),
        is_private=is_private_task(task, documents),
    )


def _only_reply(rows: Sequence[ForeignRow]) -> ForeignRow | None:
    """Return the row with the one reply of several rows, None if they differ; a failure gives way to a reply."""
    answered = [row for row in rows if row.reply is not None]
    texts = {(row.reply or "").replace("\r\n", "\n") for row in answered}
    if len(texts) > 1:
        return None
    return (answered or list(rows))[0]


def _reply_of(row: ForeignRow) -> Reply:
    if row.reply is None:
        return Reply.of_text(None)
    return Reply(text=row.reply, cut=row.is_cut, reasoning=row.reasoning)


def _status(row: ForeignRow) -> str:
    if row.reply is None:
        return "failed"
    return "matched" if row.reply else "empty"
