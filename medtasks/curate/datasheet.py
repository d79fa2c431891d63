"""Datasheet of a published study, as JSON and as Markdown."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.curate.drafts import Draft, DraftOutcome, Drafts, read_journal_lines, tally
from medtasks.curate.review.reviews import Review, agreements, clusters_of, current
from medtasks.curate.study import Study, StudyImage, StudyKind
from medtasks.data.dataset_lookup import OPTIONS
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.samples import option_index
from medtasks.home import as_json

# Lists with a section of their own in Markdown.
_SECTIONS = ("requests", "reviewers", "agreement", "caveats")
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
class Publication:
    """Part of a study that becomes one dataset, and the settings of its publication."""

    folder: Path
    study: Study
    images: Mapping[str, StudyImage]
    name: str  # name of the dataset
    min_score: int
    # The reviewer whose words count if reviewers differ; None leaves out such drafts
    wording: str | None
    balance: bool  # whether labels have to be even (hallucination studies)
    drafts: Drafts  # all drafts that were to be reviewed
    reviews: Sequence[Review]
    published: Drafts  # drafts to publish, in the words of reviewers
    left_out: Mapping[str, int]  # number of drafts left out by reason


def datasheet(about: Publication, manifest: Manifest) -> dict[str, Any]:
    """Return the datasheet as JSON types.

    Args:
        about: The study, and how it is published.
        manifest: Manifest of the dataset that the study becomes.
    """
    study = about.study
    images = about.images
    lines = read_journal_lines(about.folder).values()
    sent = [line for line in lines if line.outcome is not DraftOutcome.SKIPPED]
    clusters = len(set(clusters_of(about.published, images).values()))
    requests = []
    for (of, outcome, reason), number in sorted(tally(about.folder, study.kind).items()):
        requests.append({"of": of, "outcome": str(outcome), "reason": reason, "number": number})
    return {
        "schema_version": 1,
        "name": about.name,
        "kind": str(study.kind),
        "access": str(study.access),
        "study": study.digest,
        "fingerprint": manifest.fingerprint,
        "questions": manifest.rows,
        "images": manifest.images,
        "clusters": clusters,
        "complete": manifest.complete,
        "licences": _licences(about),
        "made_with": as_json(study.made_with),
        "llm": sorted({line.llm for line in sent} - {""}),
        "prompts": sorted({line.prompt for line in sent} - {""}),
        "requests": requests,
        "min_score": about.min_score,
        "wording": about.wording,
        "balance": None if study.kind is StudyKind.PAIRS else about.balance,
        OPTIONS: _command_options(about),
        "drafts": len(about.drafts),
        "published": len(about.published),
        "left_out": dict(sorted(about.left_out.items())),
        "labels": dict(sorted(_labels(about.published.values()).items())),
        "reviewers": [_reviewer(review, about) for review in about.reviews],
        "agreement": as_json(agreements(about.reviews, about.drafts, images)),
        "caveats": _caveats(about, clusters),
    }


def _caveats(about: Publication, clusters: int) -> list[str]:
    """Return the caveats of a dataset whose questions make that many independent groups."""
    caveats = list(_CAVEATS)
    if about.study.kind is StudyKind.PAIRS:
        caveats.append(_OF_PAIRS)
        if clusters < len(about.published):
            caveats.append(_SHARED.format(len(about.published), clusters))
    return caveats


def _licences(about: Publication) -> dict[str, int]:
    """Count the images of the published questions by licence, in the order of the licences' names."""
    image_ids = set[str]()
    for draft in about.published.values():
        image_ids.update(draft.images)
    licences = Counter(about.images[image_id].licence or "not stated" for image_id in image_ids)
    return dict(sorted(licences.items()))


def _labels(drafts: Iterable[Draft]) -> Counter[str]:
    """Count the answers of closed questions: letters, or Yes and No."""
    labels = Counter[str]()
    for draft in drafts:
        if not draft.options:
            continue
        if {option.casefold() for option in draft.options} == {"yes", "no"}:
            labels.update(draft.options[option_index(answer)] for answer in draft.answers)
        else:
            labels.update(draft.answers)
    return labels


def _command_options(about: Publication) -> list[str]:
    """Return the options of ``medtasks curate publish`` with which the dataset is made again."""
    options = ["--min-score", str(about.min_score)]
    if about.wording is not None:
        options += ["--wording", about.wording]
    if not about.balance:
        options.append("--no-balance")
    return [*options, "--as", about.name]


def _reviewer(review: Review, about: Publication) -> dict[str, Any]:
    """Return the record of one reviewer.

    The mean is over questions, the shares are over drafts. All three are None if the reviewer scored no draft.
    """
    by_item = {
        item: of.scores for item, of in current(review, about.drafts).items() if of.scores
    }
    mean = passing = published = None
    if by_item:
        scores = list(itertools.chain.from_iterable(by_item.values()))
        mean = sum(scores) / len(scores)
        passing = sum(min(of) >= about.min_score for of in by_item.values()) / len(by_item)
        published = sum(item in about.published for item in by_item) / len(by_item)
    return {
        "reviewer": review.reviewer,
        "drafts_scored": len(by_item),
        "mean_score": mean,
        "share_reaching_the_score": passing,
        "share_published": published,
    }


def as_markdown(sheet: Mapping[str, Any]) -> str:
    """Return a datasheet for people: its single values in a table, then a section for each list and mapping."""
    sections = []
    plain = []
    for name, value in sheet.items():
        title = name.replace("_", " ")
        if isinstance(value, Mapping) or name in _SECTIONS:
            sections += [f"## {title.capitalize()}", _section(name, value)]
        else:
            plain.append((title, value))
    head = [f"# Datasheet of {sheet['name']}", markdown_table(("what", "value"), plain)]
    return "\n\n".join(head + sections) + "\n"


def _section(name: str, value: Any) -> str:
    """Return a list or mapping of a datasheet in Markdown.

    Args:
        name: Key of the datasheet.
        value: Its value: sentences, records with the same keys, or a mapping, whose own mappings have a row for each
            part.
    """
    if not value:
        return "None."
    if name == "caveats":
        return "\n".join(f"- {sentence}" for sentence in value)
    if not isinstance(value, Mapping):
        columns = [key.replace("_", " ") for key in value[0]]
        return markdown_table(columns, [list(record.values()) for record in value])
    rows = []
    for key, content in value.items():
        if isinstance(content, Mapping):
            rows += [(f"{key}: {part}", text) for part, text in content.items()]
        else:
            rows.append((key, content))
    return markdown_table(("", "value"), rows)


def _text(value: object) -> str:
    """Return the text of a cell. A dash stands for an empty list and for None."""
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown, in which texts are escaped and numbers have three digits.

    Example:
        >>> print(markdown_table(("what", "value"), [("a<b", 0.12345), ("c", [])]))
        | what | value |
        | --- | --- |
        | a&lt;b | 0.123 |
        | c | - |
    """
    lines = [head, ["---"] * len(head), *(list(map(_text, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
