"""Recorded replies to one task, from a run's samples files or from a user's own files.

lmms-eval and lm-eval write one line per sample and filter; our short form is ``{"doc_id", "reply"}``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medtasks.data.privacy import hidden_id
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import Documents
from medtasks.errors import RepliesError, WithheldReply, listed, warn_once
from medtasks.extract.failure import ENVELOPE
from medtasks.extract.reading.reply_text import json_field, without_thoughts
from medtasks.families.family import Replies, Reply
from medtasks.home import home
from medtasks.metrics.metric import Score
from medtasks.net.journal import digest_of
from medtasks.runs.asked_questions import ASKED, GONE, QuestionIndex, changed_parts, name_of, row_of
from medtasks.runs.logged_samples import FOLDER_NAME, SCORE, is_private_document, is_withheld
from medtasks.runs.question_manifest import reply_files
from medtasks.runs.reply_envelope import open_envelope, parse_loglikelihood
from medtasks.runs.result_files import Note, task_of

_FORM = '{"doc_id": "10001/1", "reply": "A"}'
WRITTEN_TWICE = (
    "Lines that give a question another reply, left out: {} of {}, into which two runs wrote."
)


def read_replies(
    paths: Path | Sequence[Path], documents: Documents, settings: Mapping[str, Any] | None = None
) -> dict[str, Reply]:
    """Read recorded replies by document id, in file order, from a file or the files of one run.

    A folder means the ``.jsonl`` files in it, without those of ``medtasks questions``. A ``doc_id`` is the document's
    own id, or in all files its row in the dataset counted from 0; an ``id`` is always the document's own, and occurs
    once. Damaged lines of a run's samples file, and samples that have changed since they were asked, are left out with
    a warning.

    Args:
        paths: File or folder, or several of one run.
        documents: All documents of the task.
        settings: Settings of the task's images, by which their files are found; None: files are not compared.

    Raises:
        RepliesError: A line of another file is malformed, any line names an unknown document or contradicts an
            earlier file, or all samples have changed.
        WithheldReply: The file holds no replies, because its dataset is credentialed.
    """
    paths = [paths] if isinstance(paths, Path) else paths
    files: list[Path] = []
    for path in paths:
        in_path = reply_files(path) if path.is_dir() else [path]
        if not in_path:
            raise RepliesError(
                f"cannot read replies from {path}: the folder holds no replies (no .jsonl file)"
            )
        files += in_path
    replies: dict[str, Reply] = {}
    changes: list[str] = []
    index = question_index(files, documents)
    for file in files:
        samples = read_samples(
            file, documents, strict=not task_of(file), settings=settings, index=index
        )
        if samples.withheld:
            raise WithheldReply(
                f"{samples.withheld} holds no reply, because its dataset is credentialed; name the files of the run in "
                f"{home() / FOLDER_NAME} instead"
            )
        for doc_id, reply in samples.replies.items():
            if replies.setdefault(doc_id, reply) != reply:
                raise _two_replies(samples.answered[doc_id], doc_id)
        if samples.changed:
            changes.append(samples.describe_changes(file))
    if not replies:
        missing = f"{', '.join(map(str, paths))} holds no replies; expected lines like {_FORM}"
        raise RepliesError(" ".join(changes).rstrip(".") or missing)
    for sentence in changes:
        warn_once(sentence)
    return of_one_run(replies)


def of_one_run(replies: Replies) -> dict[str, Reply]:
    """Return the replies of a run with its digest."""
    run = digest_of(
        sorted((doc_id, reply.recorded, reply.losses) for doc_id, reply in replies.items())
    )
    return {doc_id: replace(reply, run=run) for doc_id, reply in replies.items()}


def take_answer_field(replies: Replies, name: str | None) -> dict[str, Reply]:
    """Reduce replies that are JSON objects to one field, if it has a name; RepliesError if no reply has the field."""
    if name is None:
        return dict(replies)
    texts = {
        doc_id: reply.text
        for doc_id, reply in replies.items()
        if reply.text is not None and not reply.failed
    }
    values = {
        doc_id: json_field(without_thoughts(text) or "", re.escape(name))
        for doc_id, text in texts.items()
    }
    missing = sum(not value for value in values.values())
    if values and missing == len(values):
        raise RepliesError(
            f"none of the {missing} replies has a JSON field '{name}'; give the answer field as the prompt asked for it"
        )
    if missing:
        warn_once(
            f"{missing} of {len(values)} replies have no JSON field '{name}'; they are scored as empty replies."
        )
    return {
        **replies,
        **{doc_id: replace(replies[doc_id], text=value or "") for doc_id, value in values.items()},
    }


@dataclass(frozen=True)
class SampleLine:
    """One line of a samples file."""

    place: str  # file and line number
    text: str
    record: Mapping[str, Any]  # with ``doc_id`` or ``id``

    @property
    def row(self) -> int:
        """Row of the data, counted from 0; -1 if the line gives no row."""
        return row_of(str(self.record.get("doc_id", "")))

    @property
    def is_of_harness(self) -> bool:
        """Whether the harness wrote it: its ``doc_id`` is always a row."""
        return "reply" not in self.record and type(self.record.get("doc_id")) is int

    @property
    def sample(self) -> str | None:
        """Id that the run recorded, in clear or as its digest; None if it recorded none."""
        recorded = (
            (self.score or {}).get("sample") if self.is_of_harness else self.record.get("doc_id")
        )
        return None if recorded is None else name_of(recorded)

    @property
    def asked(self) -> Mapping[str, Any] | None:
        """Fingerprint of the sample as it was asked; None if none is recorded."""
        digests = (self.score or self.record).get(ASKED)
        return digests if isinstance(digests, dict) else None

    @property
    def prompt(self) -> str:
        """The prompt; empty where it is not recorded, or withheld."""
        text = self.record.get("input")
        return text if isinstance(text, str) and not is_withheld(text) else ""

    @property
    def score(self) -> dict[str, Any] | None:
        """Score of the run, one flat record; None if the line has none of ours."""
        score = self.record.get(SCORE)
        return dict(score) if isinstance(score, dict) else None

    def match(self, index: QuestionIndex, settings: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Return the id of the answered document, and the parts that are not as they were asked; or RepliesError."""
        may_have_moved = (
            not self.is_of_harness or index.documents[0].get("dataset") is None
        )  # no prepared data
        if self.asked is not None and self.sample is not None and may_have_moved:
            doc_id = self.sample
            if doc_id not in index.rows:
                return doc_id, [GONE]
        elif self.is_of_harness:
            doc_id = self.document_in_row(index)
        elif "doc_id" in self.record:
            doc_id = index.find(name_of(self.record["doc_id"]), self.place)
        else:
            doc_id = index.find(name_of(self.record["id"]), self.place, may_be_row=False)
        if self.asked is not None:
            return doc_id, changed_parts(self.asked, index.documents[index.rows[doc_id]], settings)
        shows_another = self.prompt and index.shows_another(doc_id, self.prompt)
        return doc_id, ["question"] if shows_another else []

    def document_in_row(self, index: QuestionIndex) -> str:
        """Return the id of the document in the line's row; RepliesError if the run recorded another one."""
        if not 0 <= self.row < len(index.documents):
            raise index.no_document(str(self.record["doc_id"]), self.place)
        doc_id = str(index.documents[self.row]["doc_id"])
        if self.sample not in (None, doc_id, hidden_id("doc", doc_id)):
            raise RepliesError(
                f"{self.place} answers document '{self.sample}', but row {self.row} of the prepared dataset is "
                f"'{doc_id}'; use the data of that run: point MEDTASKS_HOME to them, or name their files in the task's "
                "own file"
            )
        return doc_id

    def reply(self, *, likelihoods: bool | None = None) -> Reply | None:
        """Return the model's reply; None where the file withholds it; RepliesError if the line has none.

        lmms-eval puts one list around a reply, lm-eval two. Several lists are one per option with ``likelihoods``;
        without them the first of repeated texts counts, and None decides by the content.
        """
        if "reply" in self.record:
            text = self.record["reply"]
            if not isinstance(text, str | None):
                raise RepliesError(f"{self.place}: 'reply' must be text or null")
            return Reply.of_text(text)
        recorded = self.record.get("resps", self.record.get("filtered_resps"))
        while (
            isinstance(recorded, list)
            and recorded
            and not likelihoods
            and (len(recorded) == 1 or likelihoods is False)
        ):
            recorded = recorded[0]
        if isinstance(recorded, list) and recorded:
            return _reply_of_options(recorded)
        if isinstance(recorded, str):
            return _reply_of_text(recorded, self.record.get("filtered_resps"))
        if recorded is None and "resps" in self.record:
            return Reply.of_text(None)
        raise RepliesError(
            f"{self.place} has neither 'reply' nor 'resps'; expected lines like {_FORM}"
        )


def _reply_of_options(recorded: Sequence[Any]) -> Reply | None:
    """Return the reply with a likelihood per option; None where the file withholds it."""
    options = [
        option[0] if isinstance(option, list) and len(option) == 1 else option
        for option in recorded
    ]
    if any(isinstance(option, str) and is_withheld(option) for option in options):
        return None
    losses, greedy = zip(*map(parse_loglikelihood, options), strict=True)
    return Reply(losses=losses, greedy=greedy)


def _reply_of_text(recorded: str, filtered: Any) -> Reply | None:
    """Return the reply from its recorded text and what filters made of it; None where the file withholds it."""
    reply = Reply.of_text(recorded)
    while isinstance(filtered, list) and filtered:
        filtered = filtered[0]
    # An envelope in place of the reply, as with --reasoning_tags, is filtered to an envelope of another text.
    if isinstance(filtered, str) and filtered.startswith(ENVELOPE):
        is_ours = open_envelope(filtered)[0].recorded != reply.recorded
        if is_ours:
            reply = open_envelope(recorded)[0]
    if is_withheld(recorded) or is_withheld(reply.text or ""):
        return None
    return Reply.of_text(reply.recorded)


@dataclass
class Samples:
    """Contents of a samples file, by document id in the order of the file."""

    replies: dict[str, Reply] = field(default_factory=dict)  # empty where the file withholds them
    prompts: dict[str, str] = field(default_factory=dict)  # without those that the file withholds
    scores: dict[str, dict[str, Score]] = field(
        default_factory=dict
    )  # scores of the run by rule; only on request
    tokens: dict[str, int] = field(
        default_factory=dict
    )  # tokens of each reply, where a model counted them
    answered: dict[str, str] = field(default_factory=dict)  # location of the first line
    withheld: str = ""  # location of the first line without its reply; or empty
    damaged: int = 0  # number of unreadable lines
    # Samples that are no longer as they were asked, which are in nothing above: their changed parts by name.
    changed: dict[str, list[str]] = field(default_factory=dict)

    def add_details(self, doc_id: str, line: SampleLine, *, keep_scores: bool) -> None:
        """Add the token count of a reply, and its prompt and score unless an earlier line gave them."""
        match line.record.get("token_counts"):
            case [{"output_tokens": int(tokens)}]:
                self.tokens[doc_id] = tokens
        if line.prompt:
            self.prompts.setdefault(doc_id, line.prompt)
        score = line.score if keep_scores else None
        if score and "rule" in score:
            self.scores.setdefault(str(score["rule"]), {}).setdefault(doc_id, score)

    def describe_changes(self, path: Path) -> str:
        """Return a sentence on the changed samples of a file."""
        parts = [f"'{name}' ({', '.join(changed)})" for name, changed in self.changed.items()]
        return (
            f"{len(parts)} of {len(self.answered) + len(parts)} samples in {path} are in no score, because they have "
            f"changed since they were asked: {listed(parts)}; give the run's command again with --only-failed to ask "
            f"them anew, or use the data of that run."
        )


def question_index(paths: Sequence[Path], documents: Documents) -> QuestionIndex:
    """Return the index by which all replies in files are matched to documents; RepliesError if they do not fit."""
    names: dict[str, str] = {}
    for path in paths:
        for line in read_lines(path, note=lambda damage: None):
            if line.is_of_harness:
                break
            if "doc_id" in line.record and line.asked is None:
                names.setdefault(name_of(line.record["doc_id"]), line.place)
    return QuestionIndex(documents, names)


def read_samples(
    path: Path,
    documents: Documents,
    *,
    likelihoods: bool | None = None,
    keep_scores: bool = False,
    strict: bool = False,
    note: Note = warn_once,
    settings: Mapping[str, Any] | None = None,
    index: QuestionIndex | None = None,
) -> Samples:
    """Read a samples file of a task with these documents.

    Damaged lines, and those that give a question another reply than an earlier line, are left out with a ``note``; with
    ``strict`` they raise RepliesError. It is always raised where the file cannot be opened, or answers other documents.
    ``settings`` and ``index`` are as in :func:`read_replies`.
    """
    index = question_index([path], documents) if index is None else index
    samples = Samples()
    contradicting = 0
    damaged: list[RepliesError] = []
    for line in read_lines(path, strict=strict, note=note, damaged=damaged):
        try:
            reply = line.reply(likelihoods=likelihoods)
        except RepliesError as error:
            if strict:
                raise
            damaged.append(error)
            continue
        doc_id, changes = line.match(index, settings or {})
        if changes:
            is_private = is_private_document(documents[index.rows.get(doc_id, 0)])
            samples.changed.setdefault(hidden_id("doc", doc_id) if is_private else doc_id, changes)
            continue
        if doc_id in samples.answered and "doc_id" not in line.record:
            raise RepliesError(
                f"{line.place}: there is an earlier reply with the id '{doc_id}'; give one per question"
            )
        samples.answered.setdefault(doc_id, line.place)
        if reply is None:
            samples.withheld = samples.withheld or line.place
        elif samples.replies.setdefault(doc_id, reply) != reply:
            contradicting += 1
            if strict:
                raise _two_replies(line.place, doc_id)
        samples.add_details(doc_id, line, keep_scores=keep_scores)
    samples.damaged = len(damaged)
    if contradicting:
        note(WRITTEN_TWICE.format(contradicting, path))
    return samples


def read_lines(
    path: Path,
    *,
    strict: bool = False,
    note: Note = warn_once,
    damaged: list[RepliesError] | None = None,
) -> Iterator[SampleLine]:
    """Yield the lines of a samples file; damaged ones are left out with a ``note``, or raise with ``strict``.

    The note comes at the end, and counts the errors in ``damaged``, to which the caller may add those of its own.
    """
    damaged = [] if damaged is None else damaged
    try:
        # Replies may hold other line separators.
        with path.open(
            encoding="utf-8-sig", errors="strict" if strict else "replace", newline="\n"
        ) as lines:
            for number, text in enumerate(lines, start=1):
                if not text.strip():
                    continue
                location = f"{path} line {number}"
                try:
                    record = parse_json(text)
                except ValueError as error:
                    damage = RepliesError(
                        f"{location} is not valid JSON ({error}); expected lines like {_FORM}"
                    )
                else:
                    if isinstance(record, dict) and record.keys() & {"doc_id", "id"}:
                        yield SampleLine(location, text.rstrip("\n"), record)
                        continue
                    form = f"{_FORM}, or with the published 'id' in place of 'doc_id'"
                    damage = RepliesError(f"{location} has no 'doc_id'; expected lines like {form}")
                if strict:
                    raise damage
                damaged.append(damage)
    except (OSError, UnicodeDecodeError) as error:
        cause = (error.strerror or error) if isinstance(error, OSError) else error
        raise RepliesError(f"cannot read replies from {path}: {cause}") from error
    if damaged:
        note(f"Torn lines, left out: {len(damaged)} of {path}.")


def _two_replies(location: str, doc_id: str) -> RepliesError:
    return RepliesError(
        f"{location}: document {doc_id} has two different replies; name the files of one run only, or the "
        f"run's folder, of which the newest replies count"
    )
