"""One task as data, read from its file without the harness: name, dataset, family, and rules that read replies.

Made by :mod:`medtasks.tasks.task_files` and used by all commands. Dotted names stay names until a property needs the
object, so that a listing imports nothing of the user's.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

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
# The harness's one filter where a file names none.
_UNNAMED = "none"
_TAKE_FIRST = "take_first"
_READ_WITH = f"{HOOKS}filters.ReadWith"
_UNFILTERED: Sequence[Config] = ({"name": _UNNAMED, "filter": [{"function": _TAKE_FIRST}]},)
_LIKELIHOODS = "multiple_choice"
Names = tuple[str, ...]


@dataclass(frozen=True)
class TaskFile:
    """One task or group. A group has only name, path, description and members.

    Attributes:
        kind: ``"task"`` or ``"group"``.
        dataset: Prepared dataset, None for a task whose documents were not prepared here.
        guarded_as: Name whose access level holds for its text: its dataset, or the one in its metadata.
        output_type: ``"generate_until"`` or ``"multiple_choice"``.
        rows: How replies are read, by the name of a row of its results.
        process_results: The hook that scores, None where the harness scores by itself.
        metric_list: Name of the list of metrics, None where they are listed one by one.
        tags: Names under which the task is selected together with others.
        breakdown: Columns by which ``medtasks score`` groups its questions.
        variants: Sanity and stress variants (``blind``, ``nota``, ...). A variant has none.
        thinking: Thinking variants. A variant or few-shot twin has none.
        variant: Sanity or thinking variant of ``base``, None for a task with a file.
        same_as: A task with questions on the same images, compared image by image in reports.
        origin: Of a few-shot twin or a task in variants.yml, the task from whose file it follows.
        differs: Keys in which it differs from its file.
    """

    name: str
    kind: str
    path: Path
    description: str
    dataset: str | None = None
    guarded_as: str | None = None
    output_type: str | None = None
    rows: Mapping[str, Rule] = field(default_factory=dict)
    process_results: DottedName | None = None
    metric_list: DottedName | None = None
    members: Names = ()
    tags: Names = ()
    breakdown: Names = ()
    variants: Names = ()
    thinking: Names = ()
    variant: str | None = None
    base: str | None = None
    same_as: str | None = None
    origin: str | None = None
    differs: Config = field(default_factory=dict)

    @property
    def is_shipped(self) -> bool:
        """Whether the task's file is one of this package."""
        return self.path.is_relative_to(tasks_folder())

    @property
    def has_own_files(self) -> bool:
        """Whether the task asks about files of a user's own, which were not prepared here."""
        return self.kind == "task" and self.dataset is None

    @property
    def compares_likelihoods(self) -> bool:
        """Whether the task's replies are likelihoods, one per option."""
        return self.output_type == _LIKELIHOODS

    @property
    def has_family(self) -> bool:
        """Whether the task's hook scores for one of our families."""
        return family_of(self.process_results) is not None

    @property
    def family(self) -> TaskFamily:
        """The family that the task's hook scores for.

        Raises:
            RepliesError: The task has no family of ours.
        """
        family = family_of(self.process_results)
        if family is None:
            raise RepliesError(f"'{self.name}' {self.only_harness}")
        return family

    @cached_property
    def metrics(self) -> tuple[AnyMetric, ...]:
        """The metrics in the task's list, in order. A task without a list has none."""
        entries = [] if self.metric_list is None else self.metric_list.resolve()
        metrics = (self.family.metric(str(entry["metric"])) for entry in entries)
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
        """Why only the harness can score the task, in words that follow its name. Empty if medtasks can, too."""
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
        """Return name and version of the rule that reads replies in a row, such as ``"robust_choice v3"``."""
        if self.compares_likelihoods and row.extractor:
            rule = extractor_of(row.extractor, AnswerKind.LIKELIHOODS)
            return f"{rule.name} v{rule.version}"
        return self.family.rule_with_version(row)

    def following(self, config: Config, differs: Config) -> "TaskFile":
        """Return a task without a file that differs from this one.

        Args:
            config: What this task's file says.
            differs: Keys in which the new task differs, its name among them.
        """
        task = task_file_of(differs["task"], {**config, **differs}, self.path)
        return replace(task, origin=self.name, differs=differs)

    def as_variant(self, variant: str, config: Config) -> "TaskFile":
        """Return a sanity, stress or thinking variant of this task.

        Args:
            variant: Ending of the variant, one of ``variants`` or ``thinking``.
            config: The whole configuration of this task.
        """
        family = family_of(self.process_results)
        changes = variant_changes(
            self.name, variant, config, self.rows, family, self.description
        )
        return replace(
            self.following(config, {**self.differs, **changes}),
            origin=self.origin,
            variants=(),
            thinking=(),
            variant=variant,
            base=self.name,
            same_as=None,
        )


def task_file_of(name: str, config: Config, path: Path) -> TaskFile:
    """Return a task from what its file and the files that it includes say.

    Args:
        name: Name of the task.
        config: The configuration, with unresolved dotted names.
        path: The task's file.
    """
    metadata = mapping_in(config, "metadata")
    location = str(config.get("dataset_path", ""))
    dataset = location.removeprefix(_PREPARED) if location.startswith(_PREPARED) else None
    process_results = config.get("process_results")
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
        guarded_as=dataset or _value_of_type(metadata.get("dataset"), str),
        output_type=str(config.get("output_type", "generate_until")),
        rows=rows,
        process_results=_value_of_type(process_results, DottedName),
        metric_list=_value_of_type(config.get("metric_list"), DottedName),
        tags=tuple(names_in(config.get("tag") or None)),
        breakdown=tuple(names_in(metadata.get("breakdown"))),
        same_as=_value_of_type(metadata.get("same_as"), str),
        variants=tuple(variant for variant in variants if variant not in impossible),
        thinking=thinking_of(config, family, rows),
    )


def _value_of_type(value: object, kind: type) -> Any:
    return value if isinstance(value, kind) else None


def _has_images(config: Config, dataset: str | None) -> bool:
    """Return whether a task's samples have images that a sanity variant can hide or swap.

    Args:
        config: The task's configuration.
        dataset: Prepared dataset of the task, None for a user's own documents.
    """
    if dataset is None:  # only our hooks know what a variant of a user's own documents shows
        messages = config.get("doc_to_messages")
        return config.get("doc_to_visual") == _IMAGES and (
            messages is None or str(messages).startswith(HOOKS)
        )
    if dataset in CATALOGUE:
        return CATALOGUE[dataset].images != 0  # an unknown number is None
    # The manifest's own class takes longer to import than everything else at start-up.
    path = dataset_folder(dataset) / "manifest.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return bool(json.loads(path.read_text(encoding="utf-8"))["images"] != 0)
    return True


def _impossible_variants(config: Config, family: TaskFamily | None) -> set[str]:
    """Return the sanity and stress variants that the questions or the prompt of a task rule out.

    Args:
        config: The task's configuration.
        family: The family that its hook scores for, None if it is not one of ours.
    """
    hook = config.get("doc_to_text")
    settings = mapping_in(config, SETTINGS)
    shows_options = hook == f"{HOOKS}prompts.lettered"  # without a template it shows them
    if templates_in(settings):
        names = names_in_templates(settings) & {"options", "option_a", "option_lines"}
        shows_options = str(hook).startswith(HOOKS) and bool(names)
    impossible = set[str]()
    if family is None or not family.rotated or not shows_options:
        impossible = {ROTATED, ABSTAIN, NOTA, NOTA_CONTROL}
    elif Column.LETTERS in family.columns.values():  # several right options
        impossible = {ABSTAIN, NOTA, NOTA_CONTROL}
    elif family.paired:
        # The options of both images would differ, so that they alone would tell the images apart.
        impossible = {NOTA, NOTA_CONTROL}
    if not isinstance(hook, DottedName):
        impossible |= {TOLD}
    return impossible


def description_in(config: Config) -> str:
    """Return the description that a file's metadata give."""
    text = mapping_in(config, "metadata").get("description")
    return text if text and isinstance(text, str) else "your own"


def _rows(config: Config, family: TaskFamily | None) -> Iterator[tuple[str, Rule]]:
    """Yield the rows of results by filter name. Replies that no rule reads are read by the family's own.

    Args:
        config: The task's configuration.
        family: The family that its hook scores for. If it is None, only filters that name a rule have a row.
    """
    for pipeline in config.get("filter_list") or _UNFILTERED:
        steps = pipeline.get("filter") or []
        name = str(pipeline["name"])
        rule = _named_rule(steps) or _rule_of_family(config, family, steps)
        if rule is None:
            continue
        if rule.extractor is None and name == _UNNAMED:
            name = "reference"
        yield name, rule


def _rule_of_family(
    config: Config,
    family: TaskFamily | None,
    steps: Sequence[Config],
) -> Rule | None:
    """Return how a family reads replies after filters that name no rule, None after filters of others."""
    if family is None:
        return None
    if family.extractor is None:  # a judge reads them
        return Rule(fenced=any(step.get("fenced") for step in steps))
    if any(step.get("function") not in (_TAKE_FIRST, _READ_WITH) for step in steps):
        return None
    by_likelihood = config.get("output_type") == _LIKELIHOODS
    return Rule(LIKELIHOOD_EXTRACTOR if by_likelihood else family.extractor)


def _named_rule(steps: Sequence[Config]) -> Rule | None:
    """Return the rule that a step of a pipeline of filters names, None if none does."""
    fenced = any(step.get("fenced") for step in steps)
    for step in steps:
        if "rule" in step:
            return Rule(
                str(step["rule"]), step.get("option"), fenced, bool(step.get("reasoned"))
            )
    return None


def templates_in(settings: Config, key: str = "template") -> list[str]:
    """Return the templates of prompts in a task's settings: those of model families, and one for all of them.

    Example:
        >>> templates_in({"template": "{{ question }}", "llava": {"template": "Q: {{ question }}"}})
        ['{{ question }}', 'Q: {{ question }}']
    """
    blocks = [settings, *(mapping_in(settings, family) for family in settings)]
    return [str(block[key]) for block in blocks if key in block]


def names_in_templates(settings: Config, key: str = "template") -> set[str]:
    """Return the names in the templates of prompts in a task's settings, or in those of one ``option``.

    Example:
        >>> names_in_templates({"template": "Q: {{ question }}"})
        {'question'}
    """
    return set().union(*map(names_in_template, templates_in(settings, key)))
