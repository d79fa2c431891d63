"""Agreement of the careful rules with labelled replies: made-up ones, and real ones that a reader labelled.

Replies are split in two by a hash. Only disagreements in the first half are printed, so that the second half tells
whether a rule has learnt the replies or the language.

    python benchmarks/labelled_replies.py /work/golden /work/data [--show KIND] [--per language]
"""

import argparse
import gzip
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of

RULES = {
    "choice": "robust_choice",
    "class": "robust_class",
    "multi": "listed_options",
    "yes_no": "robust_vqa",
    "yes_no_maybe": "robust_yes_no_maybe",
}


@dataclass(frozen=True)
class Case:
    """One labelled reply."""

    key: str
    kind: str
    language: str
    task: str
    document: Mapping[str, Any]
    reply: str
    labels: tuple[str, ...]  # one of them is right
    weight: float

    @property
    def is_looked_at(self) -> bool:
        """Whether the case is in the half whose disagreements are printed."""
        return hashlib.sha256(self.key.encode()).digest()[0] % 2 == 0

    def value(self) -> str:
        """Return what our rule reads, in the form of the labels."""
        answer = extractor_of(RULES[self.task]).extract(self.reply, Sample(self.document))
        if answer.value is None:
            return "none"
        if self.task == "multi":
            return "".join(
                chr(ord("A") + index) for index, listed in enumerate(answer.value) if listed
            )
        if self.task == "yes_no_maybe":
            return ("yes", "no", "maybe")["ABC".index(answer.value)]
        return str(answer.value)


def made_up(golden: Path) -> Iterator[Case]:
    """Read the made-up replies."""
    for line in (golden / "replies" / "made_up.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        document = {"question": row["question"], "options": row["options"], "answer": "yes"}
        yield Case(
            row["id"],
            row["kind"],
            row["language"],
            row["task"],
            document,
            row["reply"],
            (row["label"],),
            weight=1.0,
        )


def earlier(data: Path) -> Iterator[Case]:
    """Read the labels of English sources that were drawn first."""
    folder, records = data / "real_replies", dict[str, dict[str, Any]]()
    for name in ("read_by_hand", "read_by_hand_more"):
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            source = folder / f"{row['source']}.jsonl.gz"
            if row["label"] == "unclear" or not source.is_file():
                continue
            if row["source"] not in records:
                with gzip.open(source, "rt", encoding="utf-8") as lines:
                    records[row["source"]] = {
                        record["id"]: record for record in map(json.loads, lines)
                    }
            record = records[row["source"]].get(row["id"])
            if record is None:
                continue
            options = record["options"] or []
            document = {
                "options": options,
                "question": record["question"] or "",
                "answer": record["gold"],
            }
            label = "none" if row["label"] == "several" else row["label"]
            task = "choice" if options else "yes_no"
            key = f"{row['source']}/{row['id']}"
            yield Case(
                key,
                row["drawn"],
                "en",
                task,
                document,
                record["reply"],
                (label,),
                float(row["weight"]),
            )


def fresh(data: Path) -> Iterator[Case]:
    """Read the labels of fresh sources whose licence allows a copy."""
    lines = (
        (data / "real_replies" / "fresh" / "labelled.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    for row in map(json.loads, lines):
        labels = tuple((row["second_look"] or row["label"]).split("|"))
        document = {"options": row["options"], "question": row["question"]}
        language = "pt" if row["source"] == "medbench_brasil" else "en"
        key = f"fresh{row['n']}"
        yield Case(
            key,
            row["source"],
            language,
            "choice",
            document,
            row["reply"],
            labels,
            float(row["weight"]),
        )


def report(name: str, cases: list[Case], per: str, show: str) -> None:
    """Print agreement in each half and by group, and disagreements of the first half."""
    counts: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    weights: Counter[tuple[bool, bool]] = Counter()
    for case in cases:
        value = case.value()
        agrees = value in case.labels
        wrong = not agrees and value != "none"
        for group in (
            "all",
            f"{case.task}/{case.kind}" if per == "kind" else getattr(case, per),
        ):
            counts[group, case.is_looked_at].update(n=1, agrees=agrees, wrong=wrong)
        weights[case.is_looked_at, agrees] += case.weight
        if (
            not agrees
            and case.is_looked_at
            and show in ("all", case.kind, case.language, case.task)
        ):
            print(
                f"--- {case.key} {case.kind} {case.language}: {value}, not {'|'.join(case.labels)}"
            )
            print(f"    {list(case.document['options'])}\n    {case.reply[-600:]!r}")
    print(
        f"== {name}: weighted "
        + ", ".join(f"{weighted_share(weights, half):.2%}" for half in (True, False))
    )
    for group in sorted(
        {group for group, _ in counts}, key=lambda group: (group != "all", group)
    ):
        first, second = counts[group, True], counts[group, False]
        both = first + second
        shares = "  ".join(f"{half['agrees']:4}/{half['n']:<4}" for half in (first, second))
        print(
            f"{group:32} {both['agrees'] / both['n']:7.1%}  {shares}  wrong {both['wrong'] / both['n']:6.2%}"
        )


def weighted_share(weights: Counter[tuple[bool, bool]], half: bool) -> float:
    """Return the weighted agreement in a half."""
    total = weights[half, True] + weights[half, False]
    return weights[half, True] / total if total else float("nan")


def main() -> None:
    """Report on all sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("golden", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--show", default="")
    parser.add_argument("--per", choices=("kind", "language", "task"), default="kind")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    sets = {
        "made up": made_up(arguments.golden),
        "earlier": earlier(arguments.data),
        "fresh": fresh(arguments.data),
    }
    began = time.process_time()
    for name, cases in sets.items():
        if arguments.only in (name, ""):
            report(name, list(cases), arguments.per, arguments.show)
    print(f"{time.process_time() - began:.2f} s of one core")


if __name__ == "__main__":
    main()
