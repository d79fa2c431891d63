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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import filterfalse

from medtasks.extract.reading.negation import Stance, clauses, stances_of
from medtasks.home import packaged_facts
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import Judge, JudgeVerdict, judge_for
from medtasks.metrics.metric import Scale, mean
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import (
    MetricInfo,
    ReportScores,
    Texts,
    keys_of,
    register,
    score_keys,
)

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
_SIGNIFICANT = "[Clinically Significant Errors]:"
_INSIGNIFICANT = "[Clinically Insignificant Errors]:"
_MATCHED = "[Matched Findings]:"
_SECTION = re.compile(r"\s*(.*?)(?:\n\s*\n|\Z)", re.DOTALL)  # up to the next blank line
_LETTERED = re.compile(r"\([a-f]\) .*")
_NUMBERED = re.compile(r"\([1-6]\) .*")
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
    r"\b(?:errors?|mistakes?|discrepanc(?:y|ies)|inaccurac(?:y|ies)|differences?)\b",
    re.IGNORECASE,
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


_SUMMED = score_keys("green", "undefined", "injections", "failed")


@dataclass(frozen=True)
class GreenCounts:
    """Numbers that a judge's reply states."""

    significant: tuple[int, ...]  # by category, in the order of GREEN_ERRORS
    insignificant: tuple[int, ...] | None  # None for a section that is missing
    matched: int  # findings

    def score(self, *, as_published: bool) -> float:
        """GREEN: matched / (matched + significant errors).

        Where nothing is matched and nothing wrong, it is 0 as published, and else NaN. Reference: Ostmeier et al. 2024.

        Args:
            as_published: Whether an undefined score is 0.

        Example:
            >>> GreenCounts((1, 0, 0, 0, 0, 0), None, matched=3).score(as_published=False)
            0.75
        """
        total = self.matched + sum(self.significant)
        if total:
            return self.matched / total
        return 0.0 if as_published else math.nan


def green_prompt(reference: str, candidate: str) -> str:
    """Return the user message for one pair of reports.

    Args:
        reference: Report of the dataset, of which the first 300 words count.
        candidate: Report of the model under test, of which the first 300 words count.
    """
    texts = {"{reference}": reference, "{candidate}": candidate}
    words = {name: " ".join(text.split()[:_MOST_WORDS]) for name, text in texts.items()}
    return re.sub(r"\{(?:reference|candidate)\}", lambda match: words[match[0]], _TEMPLATE)


def clean_reply(reply: str) -> str:
    """Return a reply without its explanation's heading and the tokenizer's marks, as published."""
    reply = reply.rpartition("<|assistant|>")[2].rpartition("[Explanation]:")[2]
    return reply.replace("</s>", "").replace("<unk>", "")


def published_counts(reply: str) -> GreenCounts:
    """Read a reply as published, where whatever cannot be read counts as 0."""
    text = clean_reply(reply)
    matched = _MATCHED_COUNT.match(_published_section(text, _MATCHED))
    return GreenCounts(
        _published_errors(_published_section(text, _SIGNIFICANT)),
        _published_errors(_published_section(text, _INSIGNIFICANT)),
        int(matched[0]) if matched else 0,
    )


def _published_section(text: str, heading: str) -> str:
    """Return the text from a heading to the next blank line, empty if it is missing or starts with "No"."""
    section = _SECTION.match(text.partition(heading)[2])
    return section[1] if section and not section[1].startswith("No") else ""


def _published_errors(section: str) -> tuple[int, ...]:
    """Return the counts by category of the lettered lines of a section, or of its numbered ones if none is lettered."""
    counts = [0] * len(GREEN_ERRORS)
    for line in sorted(_LETTERED.findall(section) or _NUMBERED.findall(section)):
        count = _COUNT.search(line)
        if count:  # of two lines with one letter the later in this order
            category = "abcdef".find(line[1]) if line[1].isalpha() else int(line[1]) - 1
            counts[category] = int(count[0])
    return tuple(counts)


def strict_counts(reply: str) -> GreenCounts | None:
    """Read a reply that states every count once, or several times alike.

    Returns:
        None for any other reply. The section of insignificant errors alone may be missing.
    """
    text = clean_reply(reply)
    readings = []
    for heading in (_SIGNIFICANT, _INSIGNIFICANT, _MATCHED):
        parts = [_HEADING.split(part, maxsplit=1)[0] for part in text.split(heading)[1:]]
        counts = {_strict_section(heading, part) for part in parts}
        if len(counts) > 1 or None in counts:
            return None
        readings.append(next(iter(counts), None))
    significant, insignificant, matched = readings
    if significant is None or matched is None:
        return None
    return GreenCounts(significant, insignificant, matched[0])


def _strict_section(heading: str, text: str) -> tuple[int, ...] | None:
    """Return the counts of a section, or None if it does not state all of them.

    Args:
        heading: Heading of the section.
        text: Text between that heading and the next one.

    Returns:
        One count by category of errors, or the number of matched findings alone.
    """
    section = _SECTION.match(text)
    content = section[1] if section else ""
    if heading == _MATCHED:
        if _is_denial(content, _MATCH):
            return (0,)
        findings = _FINDINGS.findall(content)  # several are the numbers of a list
        return (int(findings[0]),) if len(findings) == 1 else None
    if _is_denial(text, _ERROR):
        return (0,) * len(GREEN_ERRORS)
    labels = sorted(_LABELLED_LINE.findall(content))
    stated = dict(_STATED_LINE.findall(content))
    if labels in (list("abcdef"), list("123456")) and sorted(stated) == labels:
        return tuple(int(stated[label]) for label in labels)
    return None


def _is_denial(content: str, subject: re.Pattern[str]) -> bool:
    """Return whether all that a section says is that there is nothing of its subject, in whatever words.

    An empty section says nothing, and is no denial.
    """
    text = re.sub(r"[*_`#]", "", content.replace("’", "'"))
    for pattern, denial in _DENIALS.items():
        text = re.sub(pattern, denial, text, flags=re.IGNORECASE)
    if len(text) > _LONGEST_DENIAL or _CONTRADICTION.search(text):
        return False
    statements = [clause for clause in clauses(text) if re.search(r"\w", clause)]
    for clause in statements:
        if not _NONE.fullmatch(clause) and stances_of(subject, [clause]) != {Stance.DENIED}:
            return False
    return bool(statements)


def green_verdict(judge: Judge, reference: str, candidate: str) -> JudgeVerdict[str]:
    """Return the judge's first reply about one pair of reports, whatever its form.

    Args:
        judge: GREEN's own model gets the raw string of its code, any other one a chat message.
        reference: Report of the dataset.
        candidate: Report of the model under test.
    """
    prompt = green_prompt(reference, candidate)
    is_raw = _GREEN_MODEL.fullmatch(judge.settings.model) is not None
    if is_raw:
        prompt = f"{RAW_PROMPT.format(prompt)}</s>"
    return judge.ask("", prompt, str, prompt_version=_PROMPT_VERSION, is_raw=is_raw)


def green(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
) -> ReportScores:
    """Score pairs by the judge of ``MEDTASKS_JUDGE_*``.

    Args:
        settings: Names the datasets, all of which the judge must be allowed to see.
        references: Reports of the datasets.
        hypotheses: Reports of the model under test, in the same order.

    Returns:
        Values per pair, where those that a reply does not state are NaN. Totals are the sums of counts of replies, and
        means of all other values over the pairs that have one.

    Raises:
        JudgeNotConfigured: There is no judge.
        JudgeRefused: The judge may not see the texts of one of the datasets.
    """
    judges = []
    for dataset in sorted(settings.datasets, key=str):
        judges.append(judge_for(dataset, "green needs an LLM judge"))
    judge = judges[0]
    pairs = list(zip(references, hypotheses, strict=True))
    distinct = list(dict.fromkeys(pairs))
    with ThreadPoolExecutor(judge.settings.concurrency) as threads:
        verdicts = threads.map(lambda pair: green_verdict(judge, *pair), distinct)
        replies = {
            pair: verdict.value for pair, verdict in zip(distinct, verdicts, strict=True)
        }
    samples: dict[str, list[float]] = {key: [] for key in keys_of("green")}
    for pair in pairs:
        values = _values_of(replies[pair])
        values["green_injections"] = float(addresses_judge(pair[1]))
        for key, value in values.items():
            samples[key].append(value)
    totals = {}
    for key, column in samples.items():
        if key in _SUMMED:
            totals[key] = math.fsum(column)
        else:
            totals[key] = mean([*filterfalse(math.isnan, column)])
    form = "chat message, no GREEN model"
    if _GREEN_MODEL.fullmatch(judge.settings.model):
        form = "raw string of GREEN's code"
    settings_of_judge = {
        "judge": judge.label,
        "prompt": f"v{_PROMPT_VERSION}, {form}",
        "strict reading": f"v{_READING_VERSION}",
    }
    return ReportScores(samples, totals, settings_of_judge)


def _values_of(reply: str | None) -> dict[str, float]:
    """Return the values of one reply by key, NaN for those that it does not state.

    Args:
        reply: The judge's reply, or None for a request without a reply.
    """
    values = dict.fromkeys(keys_of("green"), math.nan)
    counts = None
    if reply is not None:
        values["green_reference"] = published_counts(reply).score(as_published=True)
        counts = strict_counts(reply)
    strict = math.nan
    if counts is not None:
        strict = counts.score(as_published=False)
        values["green_matched"] = float(counts.matched)
        numbers = {"green": counts.significant, "green_minor": counts.insignificant or ()}
        for prefix, errors in numbers.items():
            for name, number in zip(GREEN_ERRORS, errors, strict=False):
                values[f"{prefix}_{name}"] = float(number)
    values["green_strict"] = strict
    values["green_failed"] = float(counts is None)
    values["green_undefined"] = float(counts is not None and math.isnan(strict))
    return values


_ERROR_KEYS = (*score_keys("green", *GREEN_ERRORS), *score_keys("green_minor", *GREEN_ERRORS))
register(
    MetricInfo(
        "green",
        "errors and matched findings that a judge counts with GREEN's prompt, strict and as published",
        score_keys("green", "strict", "reference"),
        asks_judge=True,
        compute=green,
        further={
            "green_matched": (Scale.RAW, True),
            **dict.fromkeys(_ERROR_KEYS, (Scale.RAW, False)),
            **dict.fromkeys(_SUMMED, (Scale.COUNT, False)),
        },
    )
)
