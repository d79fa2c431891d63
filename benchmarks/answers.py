"""What reading answers costs, against the calls of the reference implementation on the same texts.

Every section checks that both ways give the same answers, prints one line per comparison, and says whether its target
is met; the script exits with 1 when one is missed. The slow way is timed on the first replies only and scaled.
Needs torchmetrics (``pip install medtasks[dev]``).

    python benchmarks/answers.py [REPLIES_FOR_THE_SLOW_WAY]
"""

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchmetrics.text import BLEUScore

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import robust_vqa
from medtasks.extract.extractor_registry import Extract, extractor_of
from medtasks.extract.published.multimedeval import clean_head, clean_v0_1_0
from medtasks.extract.published.open_replies import multimedeval_vqa_head
from medtasks.metrics.ngram_metrics import References, token_overlap

REPLIES = 10_000
ORGANS = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right"),
    *("liver", "lung-left", "lung-right", "pancreas", "spleen"),
)
OPTIONS = [f"{number}: {organ}" for number, organ in enumerate(ORGANS, start=1)]
VISUAL_QUESTIONS = 7_000
FINDINGS = (
    *("effusion", "mass", "nodule", "fracture", "opacity", "edema"),
    *("lobe", "lung", "left", "right", "lower", "1.2cm"),
)
FILLERS = (
    "The",
    "CT",
    "slice",
    "shows",
    "a",
    "large",
    "organ,",
    "most",
    "likely",
    "the",
    "answer",
    "is",
    "option",
)


def organ_replies() -> list[str]:
    """Draw replies of one to two dozen words: an option or part of one, with or without words around it."""
    draw = random.Random(4)
    replies = []
    for _ in range(REPLIES):
        option = draw.choice([*OPTIONS, *ORGANS, *map(str, range(1, 12)), "I do not know"])
        words = draw.choices(FILLERS, k=draw.choice([0, 0, 4, 12, 20]))
        replies.append(" ".join([*words, option]) + draw.choice(["", ".", "\n"]))
    return replies


def visual_answers() -> list[tuple[str, str]]:
    """Draw replies and keys: a yes or no, some words, or a sentence or two."""
    draw = random.Random(5)
    pairs = []
    for _ in range(VISUAL_QUESTIONS):
        key = draw.choice(["yes", "no", " ".join(draw.choices(FINDINGS, k=draw.randint(1, 4)))])
        said = " ".join(draw.choices(FILLERS + FINDINGS, k=draw.choice([1, 4, 15, 40])))
        pairs.append(
            (
                draw.choice(
                    [key, f"{key}, {said}.", f"{said}.", f"There is no {said}, but {key}."]
                ),
                key,
            )
        )
    return pairs


def timed(
    read: Callable[[Sequence[Any]], list[Any]], replies: Sequence[Any]
) -> tuple[list[Any], float]:
    """Return what was read and the seconds per reply."""
    began = time.perf_counter()
    answers = read(replies)
    return answers, (time.perf_counter() - began) / len(replies)


def first_best(scores: Sequence[float]) -> int:
    """Return the first position of the largest score."""
    return scores.index(max(scores))


def compare(
    what: str,
    ours: Callable[..., list[Any]],
    theirs: Callable[..., list[Any]],
    texts: Sequence[Any],
    few: int,
) -> float:
    """Print what both ways take for all texts; return how many times faster ours is.

    The slow way runs before and after ours, so that a busy machine slows both alike.
    """
    half = few // 2
    before, first = timed(theirs, texts[:half])
    answers, fast = timed(ours, texts)
    after, second = timed(theirs, texts[half:few])
    if answers[:few] != before + after:
        raise SystemExit(f"{what}: the two ways read different answers")
    slow = (first + second) / 2
    print(
        f"{what}: {fast * len(texts):.3f} s for {len(texts)} replies against {slow * len(texts):.1f} s "
        f"(measured on {few}), {slow / fast:.0f}x"
    )
    return slow / fast


def option_matching(few: int) -> bool:
    """Compare choosing one of 11 options by BLEU-1 with a call of torchmetrics per option; target 50x."""
    score = BLEUScore(n_gram=1)
    cleaned_options = [clean_v0_1_0(option) for option in OPTIONS]

    def by_torchmetrics(cleaned: Sequence[str]) -> list[int]:
        return [
            first_best([score([text], [[option]]).item() for option in cleaned_options])
            for text in cleaned
        ]

    def by_torchmetrics_from_raw(replies: Sequence[str]) -> list[int]:
        # The reference cleans the options anew for every reply.
        return [
            first_best(
                [
                    score([clean_v0_1_0(reply)], [[clean_v0_1_0(option)]]).item()
                    for option in OPTIONS
                ]
            )
            for reply in replies
        ]

    def batched(cleaned: Sequence[str]) -> list[int]:
        references = References(cleaned_options)
        return [first_best(references.scores(reply)) for reply in cleaned]

    def one_by_one(replies: Sequence[str]) -> list[int]:
        sample, extract = (
            Sample({"options": OPTIONS}),
            extractor_of("multimedeval_class_v0_1_0").extract,
        )
        return ["ABCDEFGHIJK".index(extract(reply, sample).value) for reply in replies]

    replies = organ_replies()
    ratio = compare(
        "scores of 11 options",
        batched,
        by_torchmetrics,
        [clean_v0_1_0(reply) for reply in replies],
        few,
    )
    whole = compare(
        "whole rule, reply by reply", one_by_one, by_torchmetrics_from_raw, replies, few
    )
    return min(ratio, whole) >= 50


def visual_question_answering(few: int) -> bool:
    """Compare scores of visual questions with a call of torchmetrics per reply; target 1 s for all by either rule."""
    score = BLEUScore(n_gram=1)

    def rounded(f1: float, recall: float, bleu_1: float) -> tuple[float, ...]:
        return round(f1, 6), round(recall, 6), round(bleu_1, 6)

    def by_torchmetrics(pairs: Sequence[tuple[str, str]]) -> list[tuple[float, ...]]:
        found = []
        for reply, key in pairs:
            said, wanted = clean_head(reply), clean_head(key)
            overlap = token_overlap(set(said.split()), set(wanted.split()))
            found.append(rounded(overlap.f1, overlap.recall, score([said], [[wanted]]).item()))
        return found

    def by(rule: Extract, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, ...]]:
        scores = [rule(reply, Sample({"answer": key})).facts for reply, key in pairs]
        return [
            rounded(facts["token_f1"], facts["token_recall"], facts["bleu_1"])
            for facts in scores
        ]

    pairs = visual_answers()
    compare(
        "scores of visual questions",
        lambda some: by(multimedeval_vqa_head, some),
        by_torchmetrics,
        pairs,
        few,
    )
    met = True
    for rule in (multimedeval_vqa_head, robust_vqa):
        began = time.process_time()  # not the time that other processes hold the core
        by(rule, pairs)
        seconds = time.process_time() - began
        print(f"{rule.__name__}: {seconds:.3f} s for {len(pairs)} replies")
        met &= seconds < 1
    return met


SECTIONS = (option_matching, visual_question_answering)


def main() -> None:
    """Run every section."""
    few = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    torch.set_num_threads(1)  # the tensors have one element
    met = [section(few) for section in SECTIONS]
    for section, reached in zip(SECTIONS, met, strict=True):
        print(f"{section.__name__}: target {'met' if reached else 'MISSED'}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
