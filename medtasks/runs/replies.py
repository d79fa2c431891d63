"""Recorded replies to one task, from a run's samples files or from a user's own files.

lmms-eval and lm-eval write one line per sample and filter; our short form is ``{"doc_id", "reply"}``.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.data.privacy import hidden_id
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import Documents
from medtasks.errors import RepliesError, WithheldReply, join_names, warn_once
from medtasks.extract.failure import ENVELOPE
from medtasks.extract.reading.reply_text import json_field, without_thoughts
from medtasks.families.family import Replies, Reply
from medtasks.home import home
from medtasks.metrics.metric import Score
from medtasks.net.journal import digest_of
from medtasks.runs.asked_questions import (
    ASKED,
    GONE,
    QuestionIndex,
    changed_parts,
    name_of,
    row_of,
)
from medtasks.runs.logged_samples import (
    FOLDER_NAME,
    SCORE,
    is_private_document,
    is_withheld,
    saved_file,
)
from medtasks.runs.question_manifest import reply_files
from medtasks.runs.reply_envelope import open_envelope, parse_loglikelihood
from medtasks.runs.result_files import Note, task_of
from medtasks.tasks.task_index import Config

_FORM = '{"doc_id": "10001/1", "reply": "A"}'
# Longest list around a reply of which the first value is taken, by ``likelihoods`` of SampleLine.reply.
_LONGEST_LISTS = {True: 0, False: math.inf, None: 1}
WRITTEN_TWICE = (
    "Lines that give a question another reply, left out: {} of {}, into which two runs wrote."
)


def read_replies(
    paths: Path | Sequence[Path],
    documents: Documents,
    settings: Config | None = None,
) -> dict[str, Reply]:
    """Read recorded replies by document id, in file order, from a file or the files of one run.

    A folder means the ``.jsonl`` files in it, without those of ``medtasks questions``. A ``doc_id`` is the document's
    own id, or in all files its row in the dataset counted from 0; an ``id`` is always the document's own, and occurs
    once. Damaged lines of a run's samples file, and samples that have changed since they were asked, are left out with
    a warning.

    Args:
        paths: File or folder, or several of one run.
        documents: All documents of the task.
        settings: Settings of the task's images, by which their files are found; None: image files are not compared.

    Raises:
        RepliesError: A line of another file is malformed, any line names an unknown document or contradicts an
            earlier file, or all samples have changed.
        WithheldReply: The file holds no replies, because its dataset is credentialed, and those that the run saved are
            not on this machine.
    """
    paths = [paths] if isinstance(paths, Path) else paths
    files = list(chain.from_iterable(map(_files_of, paths)))
    replies: dict[str, Reply] = {}
    changes = []
    index = question_index(files, documents)
    for file in files:
        # Only a file that no run wrote must be without damage.
        samples = read_samples(
            file, documents, strict=not task_of(file), settings=settings, index=index
        )
        _add_saved_replies(samples, documents, settings)
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


def _add_saved_replies(
    samples: "Samples",
    documents: Documents,
    settings: Config | None,
) -> None:
    """Add the replies that a samples file withholds, from the files to which the run saved them.

    Args:
        samples: Content of the samples file.
        documents: All documents of the task.
        settings: Settings of the task's images; None: image files are not compared.

    Raises:
        WithheldReply: Some of the withheld replies are in no saved file.
        RepliesError: A saved file is damaged or contradicts itself.
    """
    if not samples.withheld:
        return
    for path in map(saved_file, sorted(samples.saved)):
        if path.is_file():
            saved = read_samples(path, documents, strict=True, settings=settings)
            samples.replies = saved.replies | samples.replies
            samples.changed |= saved.changed
    for doc_id in samples.changed:
        samples.answered.pop(doc_id, None)
    if samples.answered.keys() - samples.replies.keys():
        raise WithheldReply(
            f"{samples.withheld} holds no reply, because its dataset is credentialed, and {home() / FOLDER_NAME} does "
            f"not hold those of the whole run; copy the folder '{FOLDER_NAME}' of the run's MEDTASKS_HOME there, or "
            f"name the files of the run in it instead"
        )
    samples.replies = {doc_id: samples.replies[doc_id] for doc_id in samples.answered}


def _files_of(path: Path) -> list[Path]:
    """List a file, or the files of replies in a folder. Raises RepliesError if the folder has none."""
    files = reply_files(path) if path.is_dir() else [path]
    if not files:
        raise RepliesError(
            f"cannot read replies from {path}: the folder holds no replies (no .jsonl file)"
        )
    return files


def of_one_run(replies: Replies) -> dict[str, Reply]:
    """Return the replies of a run with its digest, which identifies them whatever their order."""
    recorded = [
        (doc_id, reply.text_for_files, reply.losses) for doc_id, reply in replies.items()
    ]
    run = digest_of(sorted(recorded))
    return {doc_id: replace(reply, run=run) for doc_id, reply in replies.items()}


def take_answer_field(replies: Replies, name: str | None) -> dict[str, Reply]:
    """Reduce replies that are JSON objects to one field.

    Args:
        replies: Replies by document id. Failed ones stay as they are.
        name: Name of the field, or None to leave all replies as they are.

    Raises:
        RepliesError: No reply has the field.
    """
    fields = dict(replies)
    if name is None:
        return fields
    read = 0
    missing = 0
    for doc_id, reply in replies.items():
        if reply.text is None or reply.is_failure:
            continue
        value = json_field(without_thoughts(reply.text) or "", re.escape(name))
        fields[doc_id] = replace(reply, text=value or "")
        read += 1
        missing += not value
    if 0 < read == missing:
        raise RepliesError(
            f"none of the {missing} replies has a JSON field '{name}'; give the answer field as the prompt asked for it"
        )
    if missing:
        warn_once(
            f"{missing} of {read} replies have no JSON field '{name}'; they are scored as empty replies."
        )
    return fields


@dataclass(frozen=True)
class SampleLine:
    """One line of a samples file."""

    place: str  # file and line number
    text: str
    record: Mapping[str, Any]  # with ``doc_id`` or ``id``

    @property
    def row(self) -> int:
        """Row of the data, counted from 0, or -1 if the line gives no row."""
        return row_of(str(self.record.get("doc_id", "")))

    @property
    def is_of_harness(self) -> bool:
        """Whether the harness wrote it: its ``doc_id`` is always a row."""
        return "reply" not in self.record and type(self.record.get("doc_id")) is int

    @property
    def sample(self) -> str | None:
        """Id that the run recorded, in clear or as its digest, None if it recorded none."""
        recorded = self.record.get("doc_id")
        if self.is_of_harness:
            recorded = (self.score or {}).get("sample")
        return None if recorded is None else name_of(recorded)

    @property
    def fingerprint(self) -> Mapping[str, Any] | None:
        """Fingerprint of the sample as it was asked, None if none is recorded."""
        digests = (self.score or self.record).get(ASKED)
        return digests if isinstance(digests, dict) else None

    @property
    def prompt(self) -> str:
        """The prompt, empty where it is not recorded, or withheld."""
        text = self.record.get("input")
        return text if isinstance(text, str) and not is_withheld(text) else ""

    @property
    def score(self) -> dict[str, Any] | None:
        """Score of the run, one flat record, None if the line has none of ours."""
        score = self.record.get(SCORE)
        return dict(score) if isinstance(score, dict) else None

    def match(
        self,
        index: QuestionIndex,
        settings: Config | None,
    ) -> tuple[str, list[str]]:
        """Find the document that the line answers.

        Args:
            index: Questions of the task.
            settings: Settings of the task's prompt and images; None: image files are not compared.

        Returns:
            The document's id; and the parts that are not as they were asked, ``gone`` for a document that the data have
            no longer, and none where nothing has changed or can be compared.

        Raises:
            RepliesError: No document has the name that the line gives.
        """
        doc_id = self._recorded_id(index)
        if doc_id not in index.rows:
            return doc_id, [GONE]
        if self.fingerprint is not None:
            document = index.documents[index.rows[doc_id]]
            return doc_id, changed_parts(self.fingerprint, document, settings or {})
        shows_another = self.prompt and index.shows_another(doc_id, self.prompt)
        return doc_id, ["question"] if shows_another else []

    def _recorded_id(self, index: QuestionIndex) -> str:
        """Return the id of the document that the line answers, which may be gone from the data."""
        # Without prepared data, rows may have moved since the run.
        may_have_moved = not self.is_of_harness or index.documents[0].get("dataset") is None
        if self.fingerprint is not None and self.sample is not None and may_have_moved:
            return self.sample
        if self.is_of_harness:
            return self.document_in_row(index)
        if "doc_id" in self.record:
            return index.find(name_of(self.record["doc_id"]), self.place)
        return index.find(name_of(self.record["id"]), self.place, may_be_row=False)

    def document_in_row(self, index: QuestionIndex) -> str:
        """Return the id of the document in the line's row.

        Raises:
            RepliesError: There is no such row, or the run recorded another document.
        """
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
        """Return the model's reply.

        lmms-eval puts one list around a reply, lm-eval two.

        Args:
            likelihoods: True if a list holds one likelihood per option. False if it holds repeated texts, of which the
                first counts. None decides by the content.

        Returns:
            The reply, None where the file withholds it.

        Raises:
            RepliesError: The line has none.
        """
        if "reply" in self.record:
            text = self.record["reply"]
            if not isinstance(text, str | None):
                raise RepliesError(f"{self.place}: 'reply' must be text or null")
            return Reply.of_text(text)
        recorded = self.record.get("resps", self.record.get("filtered_resps"))
        recorded = _first_of(recorded, _LONGEST_LISTS[likelihoods])
        if isinstance(recorded, list) and recorded:
            return _reply_of_options(recorded)
        if isinstance(recorded, str):
            return _reply_of_text(recorded, self.record.get("filtered_resps"))
        if recorded is None and "resps" in self.record:
            return Reply.of_text(None)
        raise RepliesError(
            f"{self.place} has neither 'reply' nor 'resps'; expected lines like {_FORM}"
        )


def _first_of(recorded: Any, longest: float = math.inf) -> Any:
    """Return the first value in lists of lists, none of which is longer."""
    while isinstance(recorded, list) and 0 < len(recorded) <= longest:
        recorded = recorded[0]
    return recorded


def _reply_of_options(recorded: Sequence[Any]) -> Reply | None:
    """Return the reply with a likelihood per option, None where the file withholds it."""
    options = []
    for option in recorded:
        is_wrapped = isinstance(option, list) and len(option) == 1
        options.append(option[0] if is_wrapped else option)
    if any(isinstance(option, str) and is_withheld(option) for option in options):
        return None
    losses, greedy = zip(*map(parse_loglikelihood, options), strict=True)
    return Reply(losses=losses, greedy=greedy)


def _reply_of_text(recorded: str, filtered: Any) -> Reply | None:
    """Return the reply from its recorded text and what filters made of it, None where the file withholds it."""
    reply = Reply.of_text(recorded)
    filtered = _first_of(filtered)
    # An envelope in place of the reply, as with --reasoning_tags, is filtered to an envelope of another text.
    if isinstance(filtered, str) and filtered.startswith(ENVELOPE):
        is_ours = open_envelope(filtered)[0].text_for_files != reply.text_for_files
        if is_ours:
            reply = open_envelope(recorded)[0]
    if is_withheld(recorded) or is_withheld(reply.text or ""):
        return None
    return Reply.of_text(reply.text_for_files)


@dataclass
class Samples:
    """Contents of a samples file, by document id in the order of the file."""

    # Empty where the file withholds them
    replies: dict[str, Reply] = field(default_factory=dict)
    # Without those that the file withholds
    prompts: dict[str, str] = field(default_factory=dict)
    # scores of the run by rule; only on request
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    # tokens of each reply, where a model counted them
    tokens: dict[str, int] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)  # location of the first line
    withheld: str = ""  # location of the first line without its reply; or empty
    saved: set[str] = field(default_factory=set)  # names of the files with the withheld replies
    damaged: int = 0  # number of unreadable lines
    # Samples that are no longer as they were asked, which are in nothing above: their changed parts by name.
    changed: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self,
        doc_id: str,
        reply: Reply | None,
        line: SampleLine,
        *,
        keep_scores: bool,
    ) -> bool:
        """Add a reply with its token count, and its prompt and score unless an earlier line gave them.

        Args:
            doc_id: Id of the answered document.
            reply: The reply, None if it is withheld.
            line: Line with the reply.
            keep_scores: Whether to add the score.

        Returns:
            Whether an earlier line gave the question another reply. That one stays, and nothing of this line is added.

        Raises:
            RepliesError: An earlier line answers the question, and this one names it by its published id.
        """
        if doc_id in self.answered and "doc_id" not in line.record:
            raise RepliesError(
                f"{line.place}: there is an earlier reply with the id '{doc_id}'; give one per question"
            )
        self.answered.setdefault(doc_id, line.place)
        score = line.score or {}
        if reply is None:
            self.withheld = self.withheld or line.place
            if score.get("saved"):
                self.saved.add(str(score["saved"]))
        elif self.replies.setdefault(doc_id, reply) != reply:
            return True
        match line.record.get("token_counts"):
            case [{"output_tokens": int(tokens)}]:
                self.tokens[doc_id] = tokens
        if line.prompt:
            self.prompts.setdefault(doc_id, line.prompt)
        if keep_scores and "rule" in score:
            self.scores.setdefault(str(score["rule"]), {}).setdefault(doc_id, score)
        return False

    def describe_changes(self, path: Path) -> str:
        """Return a sentence on the changed samples of a file."""
        parts = [f"'{name}' ({', '.join(changed)})" for name, changed in self.changed.items()]
        return (
            f"{len(parts)} of {len(self.answered) + len(parts)} samples in {path} are in no score, because they have "
            f"changed since they were asked: {join_names(parts)}; give the run's command again with --only-failed to "
            f"ask them anew, or use the data of that run."
        )


def question_index(
    paths: Sequence[Path],
    documents: Documents,
) -> QuestionIndex:
    """Return the index by which all replies in files are matched to documents.

    Args:
        paths: Samples files, or files of our short form.
        documents: All documents of the task.

    Raises:
        RepliesError: The names in the files do not fit the documents.
    """
    names: dict[str, str] = {}
    for path in paths:
        for line in read_lines(path, note=lambda damage: None):
            if line.is_of_harness:
                break
            if "doc_id" in line.record and line.fingerprint is None:
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
    settings: Config | None = None,
    index: QuestionIndex | None = None,
) -> Samples:
    """Read a samples file of a task with these documents.

    Damaged lines, lines that contradict an earlier one by giving a question another reply, and samples that have
    changed since they were asked are left out.

    Args:
        path: The file.
        documents: All documents of the task.
        likelihoods: Whether the replies are likelihoods of options, see :meth:`SampleLine.reply`.
        keep_scores: Whether to keep the scores of the run.
        strict: Whether a damaged or contradicting line raises RepliesError.
        note: Gets one sentence on the lines that are left out.
        settings: See :func:`read_replies`.
        index: Index of the replies in all files of the run, by default of this one.

    Raises:
        RepliesError: The file cannot be opened, or answers other documents.
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
        doc_id, changes = line.match(index, settings)
        if changes:
            # Of credentialed data, messages may show only the digest of an id. A question that is gone has no row;
            # the other documents are as private as the first one.
            document = index.documents[index.rows.get(doc_id, 0)]
            public_id = hidden_id("doc", doc_id) if is_private_document(document) else doc_id
            samples.changed.setdefault(public_id, changes)
            continue
        if samples.add(doc_id, reply, line, keep_scores=keep_scores):
            if strict:
                raise _two_replies(line.place, doc_id)
            contradicting += 1
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
    """Yield the lines of a samples file, without damaged ones.

    Args:
        path: The file.
        strict: Whether a damaged line raises RepliesError.
        note: Gets one sentence on the damaged lines, at the end.
        damaged: Gets the errors that are counted in it, to which the caller may add those of its own.

    Raises:
        RepliesError: The file cannot be read.
    """
    damaged = [] if damaged is None else damaged
    errors = "strict" if strict else "replace"
    try:
        # Replies may hold other line separators.
        with path.open(encoding="utf-8-sig", errors=errors, newline="\n") as lines:
            for number, text in enumerate(lines, start=1):
                if not text.strip():
                    continue
                try:
                    line = _parse_line(f"{path} line {number}", text)
                except RepliesError as damage:
                    if strict:
                        raise
                    damaged.append(damage.with_traceback(None))
                else:
                    yield line
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise RepliesError(f"cannot read replies from {path}: {cause}") from error
    if damaged:
        note(f"Torn lines, left out: {len(damaged)} of {path}.")


def _parse_line(location: str, text: str) -> SampleLine:
    """Read a line of JSON. Raises RepliesError if it is malformed, or has neither ``doc_id`` nor ``id``."""
    try:
        record = parse_json(text)
    except ValueError as error:
        raise RepliesError(
            f"{location} is not valid JSON ({error}); expected lines like {_FORM}"
        ) from None
    if isinstance(record, dict) and record.keys() & {"doc_id", "id"}:
        return SampleLine(location, text.rstrip("\n"), record)
    raise RepliesError(
        f"{location} has no 'doc_id'; expected lines like {_FORM}, or with the published 'id' in place of 'doc_id'"
    )


def _two_replies(location: str, doc_id: str) -> RepliesError:
    return RepliesError(
        f"{location}: document {doc_id} has two different replies; name the files of one run only, or the "
        f"run's folder, of which the newest replies count"
    )
