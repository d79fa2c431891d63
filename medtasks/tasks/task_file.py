"""One task as data, read from its file without the harness: name, dataset, family, and rules that read replies."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.variants import ABSTAIN, NOTA, NOTA_CONTROL, ROTATED, TOLD, VARIANTS
from medtasks.errors import RepliesError
from medtasks.extract.extractor_registry import AnswerKind, extractor_of
from medtasks.families.columns import Column
from medtasks.families.family import LIKELIHOOD_EXTRACTOR, Asks, Rule, TaskFamily, needs_labeler
from medtasks.families.templates import names_in_template
from medtasks.home import dataset_folder
from medtasks.metrics.metric import AnyMetric
from medtasks.tasks.hook_names import HOOKS, family_of
from medtasks.tasks.task_index import (
    SETTINGS,
    Config,
    DottedName,
    mapping_in,
    names_in,
    tasks_folder,
)
from medtasks.tasks.task_variants import thinking_of, variant_changes

_PREPARED = "medtasks.data.path_of."
_IMAGES = "medtasks.hooks.images.images"
_UNNAMED, _TAKE_FIRST = "none", "take_first"  # the harness's one filter where a file names none
_READ_WITH = f"{HOOKS}filters.ReadWith"  # without a rule
_LIKELIHOODS = "multiple_choice"


@dataclass(frozen=True)
class TaskFile:
    """One task or group; a group has only name, path, description and members."""

    name: str
    kind: str  # ``"task"`` or ``"group"``
    path: Path
    description: str
    dataset: str | None = None  # prepared; None for a task whose documents were not prepared here
    guarded_as: str | None = (
        None  # name whose access level holds for its text: its dataset, or the one in its metadata
    )
    output_type: str | None = None  # ``"generate_until"`` or ``"multiple_choice"``
    rows: Mapping[str, Rule] = field(
        default_factory=dict
    )  # how replies are read, by the name of a row of its results
    process_results: DottedName | None = (
        None  # None where the harness scores by itself, as is its metric list
    )
    metric_list: DottedName | None = None  # None where they are listed one by one
    members: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # names under which the task is selected together with others
    breakdown: tuple[str, ...] = ()  # columns by which ``medtasks score`` groups its questions
    variants: tuple[
        str, ...
    ] = ()  # sanity and stress variants (``blind``, ``nota``, ...); none for a variant
    thinking: tuple[str, ...] = ()  # its thinking variants; none for a variant or a few-shot twin
    variant: str | None = (
        None  # sanity or thinking variant of ``base``; None for a task with a file
    )
    base: str | None = None
    same_as: str | None = (
        None  # a task with questions on the same images, compared image by image in reports
    )
    origin: str | None = (
        None  # of a few-shot twin or a task in variants.yml: the task from whose file it follows
    )
    differs: Config = field(default_factory=dict)  # keys in which it differs from its file

    @property
    def is_shipped(self) -> bool:
        """Whether its file is one of this package."""
        return self.path.is_relative_to(tasks_folder())

    @property
    def compares_likelihoods(self) -> bool:
        """Whether its replies are a likelihood per option."""
        return self.output_type == _LIKELIHOODS

    @property
    def has_family(self) -> bool:
        """Whether its hook scores for one of our families."""
        return family_of(self.process_results) is not None

    @property
    def family(self) -> TaskFamily:
        """The family that its hook scores for; RepliesError where it has none."""
        family = family_of(self.process_results)
        if family is None:
            raise RepliesError(f"'{self.name}' {self.only_harness}")
        return family

    @cached_property
    def metrics(self) -> tuple[AnyMetric, ...]:
        """The metrics in its list, in order."""
        entries = [] if self.metric_list is None else self.metric_list.resolve()
        metrics = [self.family.metric(str(entry["metric"])) for entry in entries]
        return tuple(metric for metric in metrics if metric is not None)

    @property
    def is_computed(self) -> bool:
        """Whether its scores follow from replies without a judge, a labeler or any other model."""
        family = self.family
        return (
            family.scores_suffice
            and family.asks is Asks.NOBODY
            and not any(map(needs_labeler, self.rows.values()))
        )

    @property
    def only_harness(self) -> str:
        """Why only the harness can score it, in words that follow its name; empty where we can, too."""
        if self.kind == "group":
            return "is a group; take its member tasks one by one"
        if self.process_results is None:
            return "is scored by metrics of the harness alone, because its file names no process_results"
        if not self.has_family:
            return f"is scored by {self.process_results}, which is no hook of medtasks"
        if self.metric_list is None or not self.metric_list.is_ours:
            return "has metrics that are not those of medtasks"
        return "" if self.rows else "has no filter that names a rule of medtasks"

    def versioned_rule(self, row: Rule) -> str:
        """Return name and version of the rule that reads replies in a row."""
        if self.compares_likelihoods and row.extractor:
            rule = extractor_of(row.extractor, AnswerKind.LIKELIHOODS)
            return f"{rule.name} v{rule.version}"
        return self.family.versioned(row)

    def following(self, config: Config, differs: Config) -> "TaskFile":
        """Return a task without a file that differs from this one, whose file says ``config``."""
        task = task_file_of(differs["task"], {**config, **differs}, self.path)
        return replace(task, origin=self.name, differs=differs)

    def as_variant(self, variant: str, config: Config) -> "TaskFile":
        """Return a sanity, stress or thinking variant of this task, of which ``config`` is the whole configuration."""
        family = self.family if self.has_family else None
        changes = variant_changes(self.name, variant, config, self.rows, family, self.description)
        task = replace(self.following(config, {**self.differs, **changes}), origin=self.origin)
        return replace(
            task, variants=(), thinking=(), variant=variant, base=self.name, same_as=None
        )


def task_file_of(name: str, config: Config, path: Path) -> TaskFile:
    """Return a task from what its file and the files that it includes say, with unresolved dotted names."""
    metadata = mapping_in(config, "metadata")
    location = str(config.get("dataset_path", ""))
    dataset = location.removeprefix(_PREPARED) if location.startswith(_PREPARED) else None
    dataset_name = metadata.get("dataset")
    process_results = config.get("process_results")
    metrics = config.get("metric_list")
    same_as = metadata.get("same_as")
    family = family_of(process_results)
    rows = dict(_rows(config, family))
    variants = VARIANTS if _has_images(config, dataset) else ()
    impossible = _impossible_variants(config, family)
    return TaskFile(
        name=name,
        kind="task",
        path=path,
        description=description_in(config),
        dataset=dataset,
        guarded_as=dataset or (dataset_name if isinstance(dataset_name, str) else None),
        output_type=str(config.get("output_type", "generate_until")),
        rows=rows,
        process_results=process_results if isinstance(process_results, DottedName) else None,
        metric_list=metrics if isinstance(metrics, DottedName) else None,
        tags=tuple(names_in(config.get("tag") or None)),
        breakdown=tuple(names_in(metadata.get("breakdown"))),
        same_as=same_as if isinstance(same_as, str) else None,
        variants=tuple(variant for variant in variants if variant not in impossible),
        thinking=thinking_of(config, family, rows),
    )


def _has_images(config: Config, dataset: str | None) -> bool:
    """Return whether a task's samples have images that a sanity variant can hide or swap."""
    if dataset is None:  # only our hooks know what a variant of a user's own documents shows
        messages = config.get("doc_to_messages")
        return config.get("doc_to_visual") == _IMAGES and (
            messages is None or str(messages).startswith(HOOKS)
        )
    if dataset in CATALOGUE:
        return CATALOGUE[dataset].images != 0  # None where their number is unknown
    # The manifest's own class takes longer to import than everything else at start-up.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        manifest = json.loads(
            (dataset_folder(dataset) / "manifest.json").read_text(encoding="utf-8")
        )
        return bool(manifest["images"] != 0)
    return True


def _impossible_variants(config: Config, family: TaskFamily | None) -> set[str]:
    """Return the sanity and stress variants that the questions or the prompt of a task rule out."""
    hook = config.get("doc_to_text")
    settings = mapping_in(config, SETTINGS)
    shows_options = hook == f"{HOOKS}prompts.lettered"  # its own prompt does
    if templates_in(settings):
        names = names_in_templates(settings) & {"options", "option_a", "option_lines"}
        shows_options = str(hook).startswith(HOOKS) and bool(names)
    impossible = set[str]()
    if family is None or not family.rotated or not shows_options:
        impossible = {ROTATED, ABSTAIN, NOTA, NOTA_CONTROL}
    elif Column.LETTERS in family.columns.values():  # several right options
        impossible = {ABSTAIN, NOTA, NOTA_CONTROL}
    elif (
        family.paired
    ):  # the options of both images would differ, so that they alone tell the images apart
        impossible = {NOTA, NOTA_CONTROL}
    if not isinstance(hook, DottedName):
        impossible |= {TOLD}
    return impossible


def description_in(config: Config) -> str:
    """Return the description that a file's metadata give."""
    text = mapping_in(config, "metadata").get("description")
    return text if text and isinstance(text, str) else "your own"


def _rows(config: Config, family: TaskFamily | None) -> Iterator[tuple[str, Rule]]:
    """Yield the rows of results by filter name; replies that no rule reads are read by the family's own."""
    default = None
    by_judge = False
    if family is not None:
        by_judge = family.extractor is None
        default = (
            LIKELIHOOD_EXTRACTOR if config.get("output_type") == _LIKELIHOODS else family.extractor
        )
    for pipeline in config.get("filter_list") or [
        {"name": _UNNAMED, "filter": [{"function": _TAKE_FIRST}]}
    ]:
        steps = pipeline.get("filter") or []
        name = str(pipeline["name"])
        fenced = any(step.get("fenced") for step in steps)
        named = next((step for step in steps if "rule" in step), None)
        if named is not None:
            yield (
                name,
                Rule(str(named["rule"]), named.get("option"), fenced, bool(named.get("reasoned"))),
            )
        elif by_judge:
            yield "reference" if name == _UNNAMED else name, Rule(fenced=fenced)
        elif default and all(step.get("function") in (_TAKE_FIRST, _READ_WITH) for step in steps):
            yield name, Rule(default)


def templates_in(settings: Config, key: str = "template") -> list[str]:
    """Return the templates of prompts in a task's settings: those of model families, and one for all of them."""
    blocks = [settings, *(mapping_in(settings, family) for family in settings)]
    return [str(block[key]) for block in blocks if key in block]


def names_in_templates(settings: Config, key: str = "template") -> set[str]:
    """Return the names in the templates of prompts in a task's settings, or in those of one ``option``."""
    return set().union(*map(names_in_template, templates_in(settings, key)))
