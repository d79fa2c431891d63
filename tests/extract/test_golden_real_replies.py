"""Replies of real models under the rules of the benchmarks' own authors: their answers and published numbers."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.published.medevalkit_choice import declared_answer, open_answers
from medtasks.families.family import Reply
from medtasks.runs.replies import take_answer_field
from medtasks.tasks.task_files import task_file

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """Recorded replies of one folder that we score under the rule of its authors."""

    task: Callable[[str], str]  # by the name of a file
    row: str
    published: (
        str  # pattern of the published accuracy in the last column of the folder's README
    )


SOURCES = {
    "multimedeval_pmcllama": Source(
        lambda name: f"multimedeval_{name.lower()}", "reference", r"^\s*(0?\.\d+)"
    ),
    "mmmu": Source(lambda _: "medevalkit_mmmu_med", "reference_fixed", r"(0?\.\d+) of these"),
}


def records(file: Path) -> list[Record]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def recorded_files(test_data: Path, folder: str) -> list[Path]:
    """Return the recorded files of a source, or skip the test."""
    files = sorted((test_data / "real_replies" / folder).glob("*.jsonl.gz"))
    if not files:
        pytest.skip(f"no recorded replies in {test_data / 'real_replies' / folder}")
    return files


def as_letter(answer: str, options: Sequence[str]) -> str:
    """Return the letter of an option that is named by its letter or by its text."""
    letters = [letter(index) for index in range(len(options))]
    return (
        letters[options.index(answer)]
        if answer not in letters and answer in options
        else answer
    )


def document(record: Record) -> dict[str, Any]:
    options, gold = record["options"] or [], record["gold"]
    answer, kind = (as_letter(gold, options), "multiple-choice") if options else (None, "open")
    return {
        "doc_id": record["id"],
        "options": options,
        "gold": gold,
        "answer": answer,
        "question_type": kind,
    }


def published_accuracy(file: Path, pattern: str) -> tuple[float, int] | None:
    """Return the published accuracy of a file and its number of decimals; None where no README has it."""
    readme = file.with_name("README.md")
    rows = readme.read_text(encoding="utf-8").splitlines() if readme.is_file() else []
    lines = [
        row.strip(" |").split("|")[-1] for row in rows if row.startswith(f"| `{file.name}` |")
    ]
    number = re.search(pattern, lines[0]) if lines else None
    return number and (float(number[1]), len(number[1].partition(".")[2]))


def differing(scores: Sequence[Record], replies: Sequence[Record]) -> Iterator[str]:
    """Yield the replies in which a rule and its authors read different answers, a line each."""
    for score, record in zip(scores, replies, strict=True):
        authors, options = record["authors_answer"], record["options"]
        if authors is None:  # they drew an option
            agrees = score.get("fallback", score["value"] is None)
        elif options:
            agrees = score["value"] == as_letter(authors, options) and not score.get("fallback")
        else:  # several answers to an open question may have been kept
            parsed = set(map(str, open_answers(declared_answer(record["reply"] or ""))))
            agrees = (
                {authors} <= parsed
                if isinstance(authors, str)
                else {*map(str, authors)} <= parsed
            )
        if not agrees:
            yield f"{record['id']}: ours {score['value']}, the authors' {authors}, of {record['reply']!r}"


@pytest.mark.parametrize("folder", SOURCES)
def test_golden_published_rules_read_real_replies_as_their_authors(test_data, folder):
    for file in recorded_files(test_data, folder):
        source, replies = SOURCES[folder], records(file)
        task = task_file(source.task(file.name.partition(".")[0]))
        row = task.rows[source.row]
        scores = [
            task.family.score(
                Sample(document(record)), Reply.of_text(record["reply"] or ""), row
            )
            for record in replies
        ]
        assert list(differing(scores, replies)) == [], file.name
        if published := published_accuracy(file, source.published):
            value, decimals = published
            right = sum(
                score["value"] == score["target"] for score in task.family.final_scores(scores)
            )
            drawn = sum(record["authors_answer"] is None for record in replies)
            # Up to rounding, and to the luck of each draw.
            allowed = max(0.5 * 10**-decimals, 1e-12) + drawn / len(replies)
            assert abs(right / len(replies) - value) <= allowed, file.name


def test_golden_answer_fields_are_those_that_mirage_s_authors_took(test_data):
    """Of malformed JSON they took all that follows the field's name, also a quote and what comes after it."""
    for file in recorded_files(test_data, "mirage"):
        replies = [
            record for record in records(file) if isinstance(record["answer_field"], str)
        ]
        raw = {record["id"]: Reply.of_text(record["reply"]) for record in replies}
        taken = {
            doc_id: str(reply.text)
            for doc_id, reply in take_answer_field(raw, "answer_choice").items()
        }
        for record in replies:
            ours, authors = (
                text.replace("\\", "") for text in (taken[record["id"]], record["answer_field"])
            )
            assert authors.startswith(ours), (file.name, record["id"])
            assert ours or not authors, (file.name, record["id"])


def reader_agrees(label: Record, record: Record) -> bool:
    """Return whether the careful rule reads what the reader did: an option, yes or no, or no single answer."""
    rule = extractor_of("robust_choice" if record["options"] else "robust_vqa")
    sample = {
        "options": record["options"] or [],
        "question": record["question"] or "",
        "answer": record["gold"],
    }
    value = rule.extract(record["reply"], Sample(sample)).value
    return bool(
        value is None if label["label"] in ("none", "several") else value == label["label"]
    )


def test_golden_careful_rules_read_real_replies_as_a_reader_does(test_data):
    """At least 93 % of the labels, and 98 % of the replies that they stand for."""
    file = test_data / "real_replies" / "read_by_hand.jsonl"
    if not file.is_file():
        pytest.skip(f"no labels in {file}")
    labels = [
        label
        for label in map(json.loads, file.read_text().splitlines())
        if label["label"] != "unclear"
    ]
    replies = {
        source: {record["id"]: record for record in records(file.parent / f"{source}.jsonl.gz")}
        for source in {label["source"] for label in labels}
        if (file.parent / f"{source}.jsonl.gz").is_file()
    }
    labels = [label for label in labels if label["id"] in replies.get(label["source"], {})]
    wrong = [
        label
        for label in labels
        if not reader_agrees(label, replies[label["source"]][label["id"]])
    ]
    assert len(wrong) <= 0.07 * len(labels), wrong
    assert sum(label["weight"] for label in wrong) <= 0.02 * sum(
        label["weight"] for label in labels
    ), wrong
