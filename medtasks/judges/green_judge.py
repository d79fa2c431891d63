"""GREEN: a judge counts the errors of a report and its matched findings, from which a score follows.

The prompt is the published one to the letter. ``reference`` reads a judge's reply as published: an empty, refused or
cut reply scores 0, and a count in another form is no error. ``strict`` takes a reply that states everything once and
fails all others; nothing matched and nothing wrong has no score. A section states six zeros also by a sentence that
denies any error. Both read the same first reply. A request without a reply is in neither. The published object is
changed by replies without lettered lines, so that its later calls read no errors; every reply is read here as by a new
object.

Source: https://github.com/Stanford-AIMI/GREEN at d72c195 (``make_prompt``, ``clean_responses``, ``parse_error_counts``
and ``compute_green``).
"""

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from medtasks.extract.reading.negation import Stance, clauses, stances_of
from medtasks.home import packaged_facts
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import Judge, JudgeVerdict, judge_for
from medtasks.metrics.metric import Scale, mean
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import MetricInfo, ReportScores, keys_of, register, score_keys

# GREEN's categories (a) to (f), as its keys name them.
GREEN_ERRORS = (
    "false_finding",
    "missing_finding",
    "location",
    "severity",
    "false_comparison",
    "missing_comparison",
)

_TEMPLATE: str = packaged_facts(__package__, "prompts")["green"]["user"]
_PROMPT_VERSION = 1
_READING_VERSION = 2  # of the strict reading
_MOST_WORDS = 300  # of each report
_SIGNIFICANT, _INSIGNIFICANT = (
    "[Clinically Significant Errors]:",
    "[Clinically Insignificant Errors]:",
)
_MATCHED = "[Matched Findings]:"
_SECTION = re.compile(r"\s*(.*?)(?:\n\s*\n|\Z)", re.DOTALL)  # up to the next blank line
_LETTERED, _NUMBERED = re.compile(r"\([a-f]\) .*"), re.compile(r"\([1-6]\) .*")
_COUNT = re.compile(r"(?<=: )\b\d{1,4000}\b(?=\.)")  # longer numbers are an error in Python
_MATCHED_COUNT = re.compile(r"\d{1,4000}(?=\.)")
_FINDINGS = re.compile(r"^\s*(\d{1,4})\.(?!\d)", re.MULTILINE)
_STATED_LINE = re.compile(
    r"^\s*(?:[-*•] *)?\(([a-f1-6])\) [^:\n]*:[ \t]+(\d{1,4})\.(?!\d)", re.MULTILINE
)
_LABELLED_LINE = re.compile(r"^\s*(?:[-*•] *)?\(([a-f1-6])\)", re.MULTILINE)
_HEADING = re.compile(r"\[[A-Z][\w ]+\]:")
_LONGEST_DENIAL = 500  # characters
_DENIALS = {
    r"^\W*no\.": "none.",
    r"(?<=(?:is|re|as) )(?:zero|0)\b": "absent",
    r"\b(?:zero|0)\b(?![.,]\d)": "none ",
    r"\berror-free\b": "without error",
}
_ERROR = re.compile(
    r"\b(?:errors?|mistakes?|discrepanc(?:y|ies)|inaccurac(?:y|ies)|differences?)\b", re.IGNORECASE
)
_MATCH = re.compile(
    r"(?i)\b(?:match\w*|overlap\w*|in common|findings?(?=(?: (?:is|are|was|were) \w+)?\W*$))\b"
)
# A denial whose subject is the heading: "None were identified in the candidate report".
_NONE = re.compile(
    r"(?i)\W*(?:there (?:is|are|was|were) )?(?:none|nil|nothing|n/?a|not applicable)"
    r"(?: (?:of (?:these|this kind|the above)|to (?:report|note)|clinically|(?:in)?significant|match\w*|"
    r"(?:(?:is|are|was|were) )?(?:found|identified|noted|seen|detected|present|observed)|"
    r"in (?:the|this|either) [\w ]{,30}report))*\W*"
)
_CONTRADICTION = re.compile(
    r"(?im)[1-9]|(?:[,:]|\b(?:but|except))\s*\Z|^\W*[a-f][.):]|\b(?:other\w*|another|further|additional|more)\b|"
    r"\bnot? (?:all|lack|without|absen\w+|free|assess\w+|evaluat\w+)\b|"
    r"\b(?:one|two|three|four|five|six|several|some|few|many) (?:\w+ ){,3}(?:errors?|match\w*|findings?)\b"
)
# What the published code tokenises, which appends an end-of-sequence token: an empty turn comes before the reply.
RAW_PROMPT = "<|user|>\n{}</s>\n<|assistant|>\n</s>\n<|assistant|>\n"
_GREEN_MODEL = re.compile(r"(?:.*/)?GREEN-.*", re.IGNORECASE)


@dataclass(frozen=True)
class GreenCounts:
    """Numbers that a judge's reply states."""

    significant: tuple[int, ...]  # by category, in the order of GREEN_ERRORS
    insignificant: tuple[int, ...] | None  # None for a section that is missing
    matched: int  # findings

    def score(self, *, as_published: bool) -> float:
        """Return the share of matched findings among these and the significant errors.

        Where nothing is matched and nothing wrong, it is 0 as published, and else NaN.
        """
        total = self.matched + sum(self.significant)
        if total:
            return self.matched / total
        return 0.0 if as_published else math.nan


def green_prompt(reference: str, candidate: str) -> str:
    """Return the user message for one pair of reports."""
    texts = {"{reference}": reference, "{candidate}": candidate}
    words = {name: " ".join(text.split()[:_MOST_WORDS]) for name, text in texts.items()}
    return re.sub(r"\{(?:reference|candidate)\}", lambda match: words[match[0]], _TEMPLATE)


def clean_reply(reply: str) -> str:
    """Return a reply without its explanation's heading and the tokenizer's marks, as published."""
    reply = reply.rpartition("<|assistant|>")[2].rpartition("[Explanation]:")[2]
    return reply.replace("</s>", "").replace("<unk>", "")


def published_counts(reply: str) -> GreenCounts:
    """Read a reply as published; whatever cannot be read counts as 0."""
    text, contents = clean_reply(reply), dict[str, str]()
    for heading in (_SIGNIFICANT, _INSIGNIFICANT, _MATCHED):
        section = _SECTION.match(text.partition(heading)[2])
        contents[heading] = section[1] if section and not section[1].startswith("No") else ""
    errors = []
    for heading in (_SIGNIFICANT, _INSIGNIFICANT):
        counts = [0] * len(GREEN_ERRORS)
        lines = _LETTERED.findall(contents[heading]) or _NUMBERED.findall(contents[heading])
        for line in sorted(lines):
            if count := _COUNT.search(line):  # of two lines with one letter the later in this order
                counts["abcdef".find(line[1]) if line[1].isalpha() else int(line[1]) - 1] = int(
                    count[0]
                )
        errors.append(tuple(counts))
    matched = _MATCHED_COUNT.match(contents[_MATCHED])
    return GreenCounts(errors[0], errors[1], int(matched[0]) if matched else 0)


def strict_counts(reply: str) -> GreenCounts | None:
    """Read a reply that states every count once, or several times alike; None for any other."""
    text = clean_reply(reply)
    readings: dict[str, set[tuple[int, ...] | None]] = {}  # different ones by heading
    for heading in (_SIGNIFICANT, _INSIGNIFICANT, _MATCHED):
        parts = (_HEADING.split(part, maxsplit=1)[0] for part in text.split(heading)[1:])
        readings[heading] = {_strict_section(heading, part) for part in parts}
    if any(len(counts) > 1 or None in counts for counts in readings.values()):
        return None
    significant, insignificant, matched = (next(iter(counts), None) for counts in readings.values())
    return (
        None
        if significant is None or matched is None
        else GreenCounts(significant, insignificant, matched[0])
    )


def _strict_section(heading: str, text: str) -> tuple[int, ...] | None:
    """Return the counts of a text up to the next heading; None where it does not state all of them."""
    section = _SECTION.match(text)
    content = section[1] if section else ""
    labels, stated = sorted(_LABELLED_LINE.findall(content)), dict(_STATED_LINE.findall(content))
    findings = _FINDINGS.findall(content)  # several are the numbers of a list
    if heading == _MATCHED:
        if _is_denial(content, _MATCH):
            return (0,)
        return (int(findings[0]),) if len(findings) == 1 else None
    if _is_denial(text, _ERROR):
        return (0,) * len(GREEN_ERRORS)
    if labels in (list("abcdef"), list("123456")) and sorted(stated) == labels:
        return tuple(int(stated[label]) for label in labels)
    return None


def _is_denial(content: str, subject: re.Pattern[str]) -> bool:
    """Return whether all that a section says is that there is nothing of its subject, in whatever words."""
    text = re.sub(r"[*_`#]", "", content.replace("’", "'"))
    for pattern, denial in _DENIALS.items():
        text = re.sub(pattern, denial, text, flags=re.IGNORECASE)
    if len(text) > _LONGEST_DENIAL or _CONTRADICTION.search(text):
        return False
    statements = [clause for clause in clauses(text) if re.search(r"\w", clause)]
    return bool(statements) and all(
        _NONE.fullmatch(clause) or stances_of(subject, [clause]) == {Stance.DENIED}
        for clause in statements
    )


def green_verdict(judge: Judge, reference: str, candidate: str) -> JudgeVerdict[str]:
    """Return the judge's first reply about one pair of reports, whatever its form."""
    prompt = green_prompt(reference, candidate)
    if _GREEN_MODEL.fullmatch(judge.settings.model):
        return judge.ask(
            "", f"{RAW_PROMPT.format(prompt)}</s>", str, prompt_version=_PROMPT_VERSION, is_raw=True
        )
    return judge.ask("", prompt, str, prompt_version=_PROMPT_VERSION)


def green(
    settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> ReportScores:
    """Score pairs by the judge of ``MEDTASKS_JUDGE_*``; values that a reply does not state are NaN.

    Raises JudgeNotConfigured, and JudgeRefused where it may not see the texts of one of the datasets.
    """
    judges = [
        judge_for(dataset, "green needs an LLM judge")
        for dataset in sorted(settings.datasets, key=str)
    ]
    judge, pairs = judges[0], list(zip(references, hypotheses, strict=True))
    distinct = list(dict.fromkeys(pairs))
    with ThreadPoolExecutor(judge.settings.concurrency) as threads:
        verdicts = dict(
            zip(
                distinct,
                threads.map(lambda pair: green_verdict(judge, *pair), distinct),
                strict=True,
            )
        )
    samples: dict[str, list[float]] = {key: [] for key in keys_of("green")}
    for pair in pairs:
        reply = verdicts[pair].value
        counts = None if reply is None else strict_counts(reply)
        values = {
            "green_strict": math.nan if counts is None else counts.score(as_published=False),
            "green_reference": math.nan
            if reply is None
            else published_counts(reply).score(as_published=True),
            "green_matched": math.nan if counts is None else float(counts.matched),
        }
        for prefix, of_prefix in (
            ("green", counts and counts.significant),
            ("green_minor", counts and counts.insignificant),
        ):
            for number, name in enumerate(GREEN_ERRORS):
                values[f"{prefix}_{name}"] = float(of_prefix[number]) if of_prefix else math.nan
        values["green_failed"] = float(counts is None)
        values["green_undefined"] = float(
            counts is not None and math.isnan(counts.score(as_published=False))
        )
        values["green_injections"] = float(addresses_judge(pair[1]))
        for key, value in values.items():
            samples[key].append(value)
    totals = {
        key: mean([value for value in values if not math.isnan(value)])
        for key, values in samples.items()
    }
    totals |= {
        key: math.fsum(samples[key])
        for key in ("green_failed", "green_undefined", "green_injections")
    }
    form = (
        "raw string of GREEN's code"
        if _GREEN_MODEL.fullmatch(judge.settings.model)
        else "chat message, no GREEN model"
    )
    settings_of_judge = {"judge": judge.label, "prompt": f"v{_PROMPT_VERSION}, {form}"}
    return ReportScores(
        samples, totals, {**settings_of_judge, "strict reading": f"v{_READING_VERSION}"}
    )


register(
    MetricInfo(
        "green",
        "errors and matched findings that a judge counts with GREEN's prompt, strict and as published",
        score_keys("green", "strict", "reference"),
        asks_judge=True,
        compute=green,
        further={
            "green_matched": (Scale.RAW, True),
            **dict.fromkeys(
                [*score_keys("green", *GREEN_ERRORS), *score_keys("green_minor", *GREEN_ERRORS)],
                (Scale.RAW, False),
            ),
            **dict.fromkeys(
                score_keys("green", "undefined", "injections", "failed"), (Scale.COUNT, False)
            ),
        },
    )
)
