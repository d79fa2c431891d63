"""The datasheet of a published study: how it was made and what was left out, without a word of a question.

It lies in the dataset's folder and in the study's, as ``datasheet.json`` and, for people, as ``datasheet.md``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.audit.report.contents import as_json
from medtasks.curate.drafts import Draft, DraftOutcome, read_drafted, tally
from medtasks.curate.review.reviewer_agreement import agreements, clusters_of
from medtasks.curate.review.reviews import Review, current
from medtasks.curate.study import Study, StudyImage, StudyKind
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.own_datasets import OPTIONS

MARKDOWN = "datasheet.md"
VERSION = 1
_UNSTATED = "not stated"
_SECTIONS = ("requests", "reviewers", "agreement", "caveats")  # lists with a section of their own in Markdown
_CAVEATS = (
    "The questions were drafted by a language model from captions or reports; medtasks has checked their form, and "
    "only the reviewers named here what they say.",
    "Answers follow what the texts say; no one has confirmed them on the images beyond the review.",
    "Scores on this set are not comparable with published scores of the benchmark whose protocol it follows.",
    "The images were chosen, not sampled from a clinic: a score is no measure of safety or of use for patients.",
)
_OF_PAIRS = (
    "The pairs were selected to be alike to one encoder; models that share it, or data with it, are put at a "
    "disadvantage, and the set is no sample of images that doctors confuse."
)
_SHARED = (
    "The {} pairs make {} independent groups: those that share an image, or a patient, are one. Standard errors "
    "allow for pairs that share an image, not for several pairs of one patient; '--per-image 1' keeps pairs from "
    "sharing images."
)


@dataclass(frozen=True)
class Settings:
    """Settings of publishing a study."""

    name: str  # of the dataset
    min_score: int
    wording: str | None  # the reviewer whose words count if reviewers differ
    balance: bool  # whether labels have to be even (hallucination studies)

    @property
    def options(self) -> list[str]:
        """The same settings as options of the command."""
        words = [] if self.wording is None else ["--wording", self.wording]
        even = [] if self.balance else ["--no-balance"]
        return ["--min-score", str(self.min_score), *words, *even, "--as", self.name]


@dataclass(frozen=True)
class Publication:
    """The published and the other drafts of a study."""

    settings: Settings
    published: Mapping[str, Draft]  # in the words of reviewers
    left_out: Mapping[str, int]  # drafts by reason
    drafts: Mapping[str, Draft]  # all that were to be reviewed
    reviews: Sequence[Review]


def datasheet(
    folder: Path, study: Study, about: Publication, manifest: Manifest, images: Mapping[str, StudyImage]
) -> dict[str, Any]:
    """Return the datasheet as JSON types."""
    sent = [line for line in read_drafted(folder).values() if line.outcome is not DraftOutcome.SKIPPED]
    used = [images[image_id] for image_id in {name for draft in about.published.values() for name in draft.images}]
    clusters = len(set(clusters_of(about.published, images).values()))
    of_pairs = study.kind is StudyKind.PAIRS
    labels: Counter[str] = Counter()  # of closed questions: letters, or Yes and No
    for draft in about.published.values():
        is_yes_no = {option.casefold() for option in draft.options} == {"yes", "no"}
        for answer in draft.answers if draft.options else ():
            labels[draft.options[ord(answer) - ord("A")] if is_yes_no else answer] += 1
    shared = shared_by_pairs(study.kind, len(about.published), clusters)
    return {
        "schema_version": VERSION,
        "name": about.settings.name,
        "kind": str(study.kind),
        "access": str(study.access),
        "study": study.digest,
        "fingerprint": manifest.fingerprint,
        "questions": manifest.rows,
        "images": manifest.images,
        "clusters": clusters,
        "complete": manifest.complete,
        "licences": dict(sorted(Counter(image.licence or _UNSTATED for image in used).items())),
        "made_with": as_json(study.made_with),
        "llm": sorted({line.llm for line in sent} - {""}),
        "prompts": sorted({line.prompt for line in sent} - {""}),
        "requests": [
            {"of": of, "outcome": str(outcome), "reason": reason, "number": number}
            for (of, outcome, reason), number in sorted(tally(folder, study.kind).items())
        ],
        "min_score": about.settings.min_score,
        "wording": about.settings.wording,
        "balance": None if of_pairs else about.settings.balance,
        OPTIONS: about.settings.options,
        "drafts": len(about.drafts),
        "published": len(about.published),
        "left_out": dict(sorted(about.left_out.items())),
        "labels": dict(sorted(labels.items())),
        "reviewers": [_reviewer(review, about) for review in about.reviews],
        "agreement": as_json(agreements(about.reviews, about.drafts, images)),
        "caveats": [*_CAVEATS, *([_OF_PAIRS] if of_pairs else []), *([shared] if shared else [])],
    }


def shared_by_pairs(kind: str, published: int, clusters: int) -> str:
    """Describe the effect on standard errors of pairs that share images or patients; empty if none do."""
    return _SHARED.format(published, clusters) if kind == StudyKind.PAIRS and clusters < published else ""


def _reviewer(review: Review, about: Publication) -> dict[str, Any]:
    """Return the record of one reviewer; the mean is over questions, the share over drafts."""
    scored = {item: scores for item, review_of in current(review, about.drafts).items() if (scores := review_of.scores)}
    values = [score for scores in scored.values() for score in scores]
    passing = sum(min(scores) >= about.settings.min_score for scores in scored.values())
    return {
        "reviewer": review.reviewer,
        "drafts_scored": len(scored),
        "mean_score": sum(values) / len(values) if values else None,
        "share_reaching_the_score": passing / len(scored) if scored else None,
        "share_published": sum(item in about.published for item in scored) / len(scored) if scored else None,
    }


def as_markdown(sheet: Mapping[str, Any]) -> str:
    """Return a datasheet for people: its single values in a table, then a section for each list and mapping."""
    sections = {name: value for name, value in sheet.items() if isinstance(value, Mapping) or name in _SECTIONS}
    plain = [(_words(name), _text(value)) for name, value in sheet.items() if name not in sections]
    parts = [f"# Datasheet of {sheet['name']}", _table(("what", "value"), plain)]
    for name, value in sections.items():
        parts.append(f"## {_words(name).capitalize()}")
        if not value:
            parts.append("None.")
        elif isinstance(value, Mapping):
            parts.append(_table(("", "value"), list(_flat(value))))
        elif name == "caveats":
            parts.append("\n".join(f"- {sentence}" for sentence in value))
        else:
            parts.append(_table([_words(key) for key in value[0]], [list(record.values()) for record in value]))
    return "\n\n".join(parts) + "\n"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}: ")
        else:
            yield f"{above}{name}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[_text(cell).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells))
