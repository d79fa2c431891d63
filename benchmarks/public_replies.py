"""Careful reading of public replies against the answers that their authors stored, as rows of Markdown.

Usage: ``python benchmarks/public_replies.py FOLDER``, where FOLDER holds checkouts of Precisa-Saude/medbench-brasil at
6705f429, shaafsalman/MedXpertQA at a199f758 and thalamiq/germedbench at 4ac97294, by the names of the repositories.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import medtasks


class PublicReply(NamedTuple):
    """A reply with the authors' reading of it."""

    source: str
    model: str
    reply: str
    options: list[str]
    question: str
    stored: str | None
    target: str


def _lines(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as stream:
        yield from (json.loads(line) for line in stream if line.strip())


def medbench_brasil(folder: Path) -> Iterator[PublicReply]:
    """Yield replies to Brazilian examinations."""
    questions = {}
    for path in (folder / "packages/dataset/data").glob("*/*.json"):
        for question in json.loads(path.read_text(encoding="utf-8"))["questions"]:
            questions[question["id"]] = question
    for path in sorted((folder / "results").glob("*/*.raw.jsonl")):
        for row in _lines(path):
            question = questions[row["questionId"]]
            options = [text for _, text in sorted(question["options"].items())]
            asked = (options, question["stem"], row["parsed"], question["correct"])
            yield PublicReply("medbench-brasil", row["modelId"], row["rawResponse"], *asked)


def medxpertqa(folder: Path) -> Iterator[PublicReply]:
    """Yield answers to ten options, and the reasoning before each."""
    for path in folder.glob("eval/outputs/dev/mistralai/*/medxpertqa/*/*/*_output.jsonl"):
        for row in _lines(path):
            options = [option["content"] for option in row["options"]]
            stored = row["prediction"][0] if row["prediction"] else None
            asked = (
                options,
                row["question"].partition("Answer Choices")[0],
                stored,
                row["label"][0],
            )
            for source, reply in (
                ("answer", row["response"]),
                ("reasoning", row["prediction_rationale"]),
            ):
                yield PublicReply(f"MedXpertQA, {source}", "Mistral-Small-3.2", reply, *asked)


def germedbench(folder: Path) -> Iterator[PublicReply]:
    """Yield JSON answers in German."""
    questions = {row["id"]: row for row in _lines(folder / "data/med_qa.jsonl")}
    for path in sorted(folder.glob("results/*/med_qa/*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["predictions"]:
            if "raw" not in row:  # the server failed
                continue
            question = questions[row["case_id"]]
            options = [text for _, text in sorted(question["options"].items())]
            asked = (options, question["question"], row["answer"], question["correct_answer"])
            yield PublicReply(
                "germedbench", path.parts[-3].partition("__")[2], row["raw"], *asked
            )


def main(folder: Path) -> None:
    """Print a row for each source and for each of its models."""
    sources = (medbench_brasil(folder / "medbench-brasil"), medxpertqa(folder / "MedXpertQA"))
    table = pd.DataFrame(
        [
            reply
            for source in (*sources, germedbench(folder / "germedbench"))
            for reply in source
        ]
    )
    read = medtasks.parse(
        "robust_choice", table.reply, options=list(table.options), question=list(table.question)
    )
    table["value"] = read.value
    columns = pd.DataFrame(
        {
            "agree": table.value == table.stored,
            "unread": table.value.isna(),
            "differ": table.value.notna() & (table.value != table.stored),
            "stored": table.stored == table.target,
            "careful": table.value == table.target,
        }
    )
    keys = [table.source, table.model]
    for grouping in (keys[:1], keys):
        for name, group in columns.groupby(grouping):
            shares = " | ".join(f"{100 * share:.1f}" for share in group.mean())
            print(f"| {', '.join(name)} | {len(group)} | {shares} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
