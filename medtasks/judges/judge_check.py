"""Check of a judge: made-up cases with known answers, none of which is in any dataset.

Pairs of reports differ by one planted error of GREEN's categories, or in wording only. Short answers are right or
wrong under MedEvalKit's prompt; injections are wrong answers that address the judge, asked as published and fenced.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.judges.green_judge import GREEN_ERRORS, green_verdict, strict_counts
from medtasks.judges.judge_client import BAD_FORMAT, Judge
from medtasks.judges.published_judges import AGAIN_VERSION, medevalkit_prompt, strict_verdict
from medtasks.stats.intervals import interval
from medtasks.version import __version__

ALL = "all"
KINDS = ("report", "answer", "injection", "injection_fenced")


@dataclass(frozen=True)
class CheckedShare:
    """Share of cases that a judge gets right, with its 95 % interval."""

    right: int
    cases: int
    low: float
    high: float


def check_judge(judge: Judge) -> dict[str, CheckedShare]:
    """Ask a judge all cases, and store next to its verdicts how many it gets right.

    A reply that cannot be read is not right.

    Args:
        judge: The judge, whose limits on requests hold.

    Returns:
        Shares by kind of case, and that of ``all``.

    Raises:
        MedTasksError: A request gets no reply; then nothing is stored.
    """
    content = resources.files(__package__).joinpath("check_cases.jsonl").read_bytes()
    cases = [json.loads(line) for line in content.splitlines()]
    cases += [
        {**case, "kind": "injection_fenced"} for case in cases if case["kind"] == "injection"
    ]
    with ThreadPoolExecutor(judge.settings.concurrency) as threads:
        results = list(threads.map(lambda case: _is_right(judge, case), cases))
    failures = [result for result in results if isinstance(result, str)]
    if failures:
        sentence = f"{len(failures)} of {len(cases)} cases of the check got no reply, so that it has no result"
        raise MedTasksError(f"{sentence}: {failures[0]}")
    shares = _shares_by_kind(cases, results)
    total = shares[ALL]
    kinds = ", ".join(f"{kind} {shares[kind].right}/{shares[kind].cases}" for kind in KINDS)
    limits = f"95 % interval {100 * total.low:.1f} to {100 * total.high:.1f} %"
    record = {
        "judge": judge.settings.label,
        "endpoint": judge.settings.base_url,
        "sentence": f"right in {total.right} of {total.cases} made-up cases ({limits}; {kinds})",
        "shares": {kind: asdict(share) for kind, share in shares.items()},
        "cases": hashlib.sha256(content).hexdigest()[:16],
        "medtasks": __version__,
    }
    judge.checks.put({judge.check_key: json.dumps(record).encode("ascii")})
    return shares


def _shares_by_kind(
    cases: Sequence[Mapping[str, str]],
    results: Sequence[bool | str],
) -> dict[str, CheckedShare]:
    """Return the share of right cases by kind, and that of all.

    Args:
        cases: The cases.
        results: Result of :func:`_is_right` for each case.
    """
    results_by_kind: dict[str, list[bool]] = {kind: [] for kind in (*KINDS, ALL)}
    for result, case in zip(results, cases, strict=True):
        for kind in (case["kind"], ALL):
            results_by_kind[kind].append(result is True)
    shares = {}
    for kind, values in results_by_kind.items():
        share = sum(values) / len(values)
        error = math.sqrt(share * (1 - share) / len(values))
        ends = interval(share, error, None, share=True, effective=len(values))
        shares[kind] = CheckedShare(sum(values), len(values), *ends)
    return shares


def _is_right(judge: Judge, case: Mapping[str, Any]) -> bool | str:
    """Return whether the judge gets a case right, or the reason, as a text, for which there is no reply.

    Right for a pair of reports is a reply that states the planted error, no other, and something that matches.

    Args:
        judge: The judge.
        case: Line of ``check_cases.jsonl``. ``planted`` is None if the reports differ in wording only.
    """
    if case["kind"] == "report":
        verdict = green_verdict(judge, case["reference"], case["candidate"])
        if verdict.value is None:
            return str(verdict.failure)
        counts = strict_counts(verdict.value)
        if counts is None or not counts.matched:
            return False
        minor = counts.insignificant or (0,) * len(GREEN_ERRORS)
        stated = []
        for name, *numbers in zip(GREEN_ERRORS, counts.significant, minor, strict=True):
            if any(numbers):
                stated.append(name)
        return stated == ([case["planted"]] if case["planted"] else [])
    prompt = medevalkit_prompt(
        case["question"],
        case["gold"],
        case["answer"],
        fenced=case["kind"] == "injection_fenced",
    )
    answer = judge.ask("", prompt, strict_verdict, prompt_version=AGAIN_VERSION)
    if answer.value is None:
        return False if answer.failure == BAD_FORMAT else str(answer.failure)
    return bool(answer.value == case["right"])
