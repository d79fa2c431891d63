"""Documents of a task, prepared, a user's own, or those of variants, with their provenance and privacy.

A task of the user's own is checked before a run: keys, hooks, filters, metrics, and the prompt of its first sample. Its
hooks are imported; neither the harness nor a model is started.
"""

import contextlib
import hashlib
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data import variants
from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import provenance
from medtasks.data.dataset_manifest import text_fingerprint
from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.images.volume_files import holds_volume
from medtasks.data.privacy import access_of, is_private
from medtasks.data.samples import Document, Documents, Sample
from medtasks.data.schema import SPLIT, NewDocument
from medtasks.data.variants import (
    NEW_COLUMNS,
    NOT_OF_ALL,
    NOTA_CONTROL,
    ROTATED,
    SWAPPED,
    TOLD,
    swapped_images,
)
from medtasks.errors import (
    JudgeNotConfigured,
    JudgeRefused,
    MedTasksError,
    SourceError,
    near_match,
    one_line,
    unknown_name,
)
from medtasks.extract.extractor_registry import (
    NO_OPTIONS,
    AnswerKind,
    extractors,
    lacks_options,
)
from medtasks.families.family import Asks, TaskFamily
from medtasks.families.templates import names_in_template
from medtasks.judges.judge_client import is_configured, settings_for
from medtasks.metrics.metric import STDERR
from medtasks.prompts.images import image_path, images, volume_rule
from medtasks.tasks.hook_names import HOOKS, public_hooks
from medtasks.tasks.own_documents import (
    complete_documents,
    default_settings,
    is_our_hook,
    location_of,
    own_documents,
    own_table,
    rows_of,
)
from medtasks.tasks.task_file import TaskFile, names_in_templates
from medtasks.tasks.task_files import members_of, task_config, task_file, task_files, variant_of
from medtasks.tasks.task_index import (
    FAMILY_KEYS,
    LOCAL_LOADERS,
    SETTINGS,
    Config,
    DottedName,
    NewConfig,
    mapping_in,
    resolve_names,
)
from medtasks.tasks.task_variants import (
    MESSAGES_OF,
    TEXT_OF,
    THINKING,
    Hook,
    thinking_prompt,
    told_prompt,
)

KEYS = frozenset(
    (  # noqa: SIM905 - a list would take a line for each
        "include task task_alias tag group group_alias class dataset_path dataset_name dataset_kwargs training_split "
        "validation_split test_split fewshot_split full_docs process_results_use_image process_docs doc_to_visual "
        "doc_to_text doc_to_target doc_to_choice doc_to_messages process_results use_prompt description "
        "target_delimiter fewshot_delimiter fewshot_config num_fewshot metric_list output_type generation_kwargs "
        "repeats filter_list should_decontaminate doc_to_decontamination_query cluster_key score_key metadata "
        "lmms_eval_specific_kwargs model_specific_generation_kwargs model_specific_target_kwargs reasoning_tags "
        "auto_strip_thinking"
    ).split()
)
"""Keys of a task file, those of lmms-eval 0.7.3."""
_PROMPT_SETTINGS = (  # noqa: SIM905 - as above
    "template yes_no_template options_template example example_answer closed_prefix option options_joined_by "
    "images_joined_by findings_joined_by image_mark shown_images image_name image_root image_rule image_range "
    "demonstrations no_finding plane slices window slices_as"
).split()
_TEXTS = ("doc_to_text", "doc_to_target")
_OPENING = ("doc_to_visual", "doc_to_messages")  # hooks that open images
_PROMPT = (*_TEXTS, "doc_to_choice", *_OPENING)
_IMAGES = ("image_file", "image_files", "image_sha256")
_FUNCTIONS = (*_PROMPT, "process_docs", "process_results")
_COPY_BLOCK = "copy it from a block of docs/own_tasks.md"

Problems = Iterator[str]
"""Problems of a task, one sentence each."""


def task_documents(task: TaskFile) -> list[NewDocument]:
    """Return the documents of a task or a sanity variant, in order. Each has a ``doc_id``.

    Raises:
        DatasetNotPrepared: The dataset is missing.
        SourceError: It is damaged.
        MedTasksError: The task is a group, own documents cannot be used, or images cannot be swapped.
    """
    if task.kind == "group":
        raise MedTasksError(f"'{task.name}' is a group; take its member tasks one by one")
    if task.dataset is not None:
        return _as_variant(task, load_documents(task.dataset))
    base = task.base or task.name
    return _as_variant(task, own_documents(base, task_config(base)))


def check_possible(task: TaskFile) -> None:
    """Check before a run that a task of the user's own is sound, and that the documents of a task or variant exist.

    Raises:
        MedTasksError: The first of :func:`task_problems`, and the errors of :func:`task_documents`.
    """
    if not task.is_shipped:
        _raise_problem(task)
    if task.variant in NOT_OF_ALL and (
        task.dataset is None or task.variant not in (SWAPPED, ROTATED)
    ):
        task_documents(task)
    if task.dataset is None:
        return
    table = open_documents(task.dataset)[SPLIT]
    if task.variant == SWAPPED:
        names = ("dataset", "patient_id", "pair_id", "position", "image_id", *_IMAGES)
        present = [name for name in names if name in table.column_names]
        swapped_images(table.select_columns(present).to_list())


def _raise_problem(task: TaskFile) -> None:
    """Raise MedTasksError for the first problem of a task of the user's own that has hooks of ours."""
    config = task_config(task.base or task.name)
    if any(is_our_hook(config.get(key)) for key in _FUNCTIONS):
        for problem in task_problems(task):
            raise MedTasksError(problem)


def check_judge(task: TaskFile) -> None:
    """Check before a run that a task which cannot do without an LLM judge has one that may see its data.

    So does a task that a judge serves in part, if one is named at all: a wrong setting stops both at the first prompt.

    Raises:
        JudgeNotConfigured: No judge is configured.
        JudgeRefused: It may not see the data.
    """
    asks = task.family.asks if task.has_family else Asks.NOBODY
    if asks is Asks.JUDGE or (asks is Asks.JUDGE_IF_THERE and is_configured()):
        settings_for(task.guarded_as, f"'{task.name}' needs an LLM judge")


def variant_hook(name: str) -> Callable[[Any], Any]:
    """Return the hook that the harness's file for a variant names: its ``process_docs``, under the variant's name.

    Args:
        name: Name of the variant. After ``text_of_`` and ``messages_of_``, the hook is the one for the prompt of a
            thinking variant or of ``_told``.

    Raises:
        AttributeError: No variant has the name.
    """
    keys = {TEXT_OF: "doc_to_text", MESSAGES_OF: "doc_to_messages"}
    prefix = next((prefix for prefix in keys if name.startswith(prefix)), "")
    task_name = name.removeprefix(prefix)
    names = variant_of(task_name)
    if names is None:
        raise AttributeError(name)
    base, variant = names
    task = task_file(task_name)
    config = task_config(base)
    if prefix:
        prompt = resolve_names(config[keys[prefix]])
        if variant == TOLD:
            return told_prompt(prompt)
        return thinking_prompt(prompt, variant, task.family)
    config.pop("dataset_path", None)
    hook = _documents_hook(task, resolve_names(config))
    hook.__name__ = hook.__qualname__ = name  # as a task's configuration prints it
    return hook


def _documents_hook(task: TaskFile, config: Config) -> Callable[[Any], Any]:
    """Return the hook that makes a variant's documents of its base task's, tables of the ``datasets`` library."""

    def process_docs(table: Any) -> Any:
        """Return the variant's documents, from those of the base task as its dataset has them."""
        import datasets

        if task.dataset is None:
            process = config.get("process_docs")
            table = complete_documents(process(table) if process else table, config, apart=True)
        rows = _as_variant(task, rows_of(table))
        features = {}
        for column, value in rows[0].items():
            if column in _IMAGES and isinstance(value, list):
                features[column] = datasets.List(datasets.Value("string"))
            else:
                features[column] = table.features.get(column) or datasets.Value(
                    NEW_COLUMNS[column]
                )
        return datasets.Dataset.from_list(rows, features=datasets.Features(features))

    return process_docs


def _as_variant(task: TaskFile, documents: list[NewDocument]) -> list[NewDocument]:
    """Return the documents of a task, made from those of its base.

    Args:
        task: Task or variant. A task itself, and a thinking variant, has the documents of the base as they are.
        documents: Documents of the base.
    """
    if task.variant is None or task.variant in THINKING:
        return documents
    if task.variant == NOTA_CONTROL:
        return variants.nota(documents, control=True)
    if task.variant == ROTATED:
        family = task_file(str(task.base)).family
        samples = list(map(Sample, documents))
        return variants.rotated(documents, family.independent_clusters(samples))
    change: Callable[[Documents], list[NewDocument]] = getattr(variants, task.variant)
    return change(documents)


@dataclass(frozen=True)
class Selection:
    """Chosen tasks.

    Attributes:
        ready: Names for the harness. A group or tag of ready members keeps its name, as do names of others.
        missing: Why a task cannot run, by task name.
    """

    ready: tuple[str, ...]
    missing: dict[str, str]


def select(names: Sequence[str]) -> Selection:
    """Look up datasets and judges of tasks, variants, groups and tags.

    Args:
        names: Names as given to ``--tasks``.
    """
    ready: dict[str, None] = {}
    missing: dict[str, str] = {}
    for name in names:
        lacking = {}
        able = []
        for task in members_of(name):
            try:
                check_possible(task)
                check_judge(task)
            except MedTasksError as error:
                lacking[task.name] = str(error)
            else:
                able.append(task.name)
        missing |= lacking
        ready |= dict.fromkeys(able if lacking else [name])
    return Selection(tuple(ready), missing)


# ---- provenance and privacy ----


def task_provenance(task: TaskFile, documents: Documents) -> dict[str, Any]:
    """Return the provenance of a task's data.

    A user's own have their location, and a fingerprint of twelve digits that changes with their text, and with the rule
    for volumes where there are any, but not with images.
    """
    if task.dataset is not None:
        return provenance(task.dataset)
    private = is_private_task(task, documents)
    fingerprint = text_fingerprint(documents)
    base = task_file(task.base or task.name)
    # A relative path cannot be opened, as the checks say.
    with contextlib.suppress(SourceError):
        if any(map(holds_volume, itertools.chain(*image_files(base, documents)))):
            rule = volume_rule({}, image_settings(base))
            fingerprint = hashlib.sha256(f"{fingerprint}{rule}".encode()).hexdigest()
    return {
        "fingerprint": fingerprint[:12],
        "source": "withheld" if private else location_of(task_config(base.name)),
        "prepared": False,
        "sample": False,
        "complete": True,
        "rows": len(documents),
    }


def is_private_task(task: TaskFile, documents: Documents = ()) -> bool:
    """Return whether text of a task must stay out of logs."""
    return bool(private_datasets(task, documents))


def private_datasets(task: TaskFile, documents: Documents = ()) -> list[str]:
    """Return the names of a task's dataset and of its documents' by which its text must stay out of logs."""
    return sorted(filter(is_private, _names(task, documents)))


def access_of_task(task: TaskFile, documents: Documents = ()) -> str:
    """Return the strictest access level of a task's documents, or an empty text if nothing names a dataset."""
    levels = map(access_of, _names(task, documents))
    return str(max(levels, key=list(Access).index, default=""))


def unreadable_images(task: TaskFile, documents: Documents) -> Problems:
    """Open the images of a user's own documents, and yield one sentence for each document whose images fail."""
    if task_config(task.name).get("doc_to_visual") != "medtasks.hooks.images.images":
        return
    settings = image_settings(task)
    seen = set()
    for document in documents:
        files = tuple(document.get("image_files", (document.get("image_file"),)))
        if files in seen:
            continue
        seen.add(files)
        try:
            images(document, settings)
        except MedTasksError as error:
            yield str(error)


def image_files(task: TaskFile, documents: Documents) -> list[list[Path]]:
    """Return the paths of the images of each of a user's own documents.

    Raises:
        SourceError: A path is relative, and the task names no folder.
    """
    settings = image_settings(task)
    paths = []
    for document in documents:
        paths.append([image_path(file, document, settings) for file in Sample(document).images])
    return paths


def image_settings(task: TaskFile) -> Config:
    """Return the settings by which a task's images are found: those of the harness's default model family."""
    return default_settings(task_config(task.name))


def _names(task: TaskFile, documents: Documents) -> set[str]:
    names = (task.guarded_as, *(document.get("dataset") for document in documents))
    return {str(name) for name in names if name is not None}


# ---- checks of a task of the user's own ----


def task_problems(task: TaskFile, *, download: bool = False) -> Problems:
    """Yield the problems that would stop a run of a task, one sentence each. Later checks need earlier ones to pass.

    Args:
        task: Task or variant of the user's own. Of a variant, the base is checked.
        download: Whether the first sample is also checked if it has to be downloaded.

    Raises:
        MedTasksError: Documents cannot be loaded or lack columns that hooks need.
    """
    if task.base is not None:
        task = task_file(task.base)
    written = task_config(task.name)
    problems = _key_problems(written)
    config: NewConfig = {}  # with the objects that dotted names mean
    for key in written.keys() - {"dataset_path"}:
        try:
            config[key] = _resolve_value(key, written[key])
        except MedTasksError as error:
            problems.append(f"{key}: {error}")
    problems = problems or list(_scoring_problems(task, config))
    document = None if problems else _first_document(task, written, download=download)
    if document is not None:
        problems = [
            *_prompt_problems(config, document, private=is_private_task(task, [document])),
            *_missing_columns(task, written, document),
        ]
        if task.same_as is not None:
            problems += _different_images(task, task.same_as)
    yield from (f"the task file {task.path}: {problem}" for problem in dict.fromkeys(problems))


def _key_problems(written: Config) -> list[str]:
    """Return why keys of a task file are misspelt, or need a ``family``."""
    misspelt = []
    valid = [*KEYS, *FAMILY_KEYS]
    for key in written:
        hint = "" if key in valid else near_match(str(key), valid)
        if hint:
            misspelt.append(f"no key is called '{key}'{hint}")
    alone = [f"'{key}' needs a line family: NAME" for key in written if key in FAMILY_KEYS]
    return misspelt + alone


def _first_document(task: TaskFile, written: Config, *, download: bool) -> Document | None:
    """Return the first sample as the harness hands it to hooks, or None if it would have to be downloaded."""
    if task.dataset is not None:
        return dict(open_documents(task.dataset)[SPLIT][0])
    path = str(written.get("dataset_path"))
    if download or path in LOCAL_LOADERS or os.path.exists(path):
        return dict(complete_documents(own_table(task.name, written), written)[0])
    return None


def unknown_keys(task: TaskFile) -> list[str]:
    """Return the keys of a task's file that are unknown and like no known key. A newer harness may have such keys."""
    keys = [str(key) for key in task_config(task.name) if key not in KEYS]
    return [key for key in keys if not near_match(key, KEYS)]


def _resolve_value(key: str, value: Any) -> Any:
    """Return the value of a key with the objects that dotted names in it mean.

    Raises:
        MedTasksError: A name means nothing, or no function where the key needs one.
    """
    resolved = resolve_names(value, _import_named)
    is_named = key in _FUNCTIONS and isinstance(value, DottedName)
    if is_named and not callable(resolved):
        raise MedTasksError(f"'{value}' is no function; name one")
    return resolved


def _import_named(name: DottedName) -> Any:
    """Import the object that a dotted name means.

    Raises:
        MedTasksError: It does not exist, or its module fails. The message has the nearest name.
    """
    module, _, attribute = name.rpartition(".")
    names: list[str] = []
    try:
        loaded = name.module()
        names = [f"{module}.{each}" for each in vars(loaded)]
        return getattr(loaded, attribute)
    except MedTasksError:
        raise
    except (Exception, SystemExit) as error:  # the module may be the user's own
        is_missing = (isinstance(error, AttributeError) and names) or (
            isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        )
        if not is_missing:
            raise MedTasksError(
                f"'{name}' cannot be imported ({one_line(error)}); correct {module}"
            ) from error
        suggestion = near_match(name, [*names, *public_hooks()])
        hint = suggestion or f"; {module}.py next to the task's file can define it"
        raise MedTasksError(f"'{name}' does not exist{hint}") from error


def _scoring_problems(task: TaskFile, config: Config) -> Problems:
    """Yield problems of filters, of rules that read no replies for the task's family, of metadata and of metrics."""
    filter_problems = list(_filter_problems(config))
    yield from filter_problems
    if not task.has_family:
        return
    if not isinstance(config.get("metadata") or {}, Mapping):
        yield "'metadata' is a list; write it as a mapping, such as metadata: {version: 1}"
    if task.dataset is not None and "language" in mapping_in(config, "metadata"):
        yield "language: only replies to questions of your own are read in one language; remove it from the metadata"
    if not filter_problems:
        rules = extractors(
            AnswerKind.LIKELIHOODS if task.compares_likelihoods else task.family.kind
        )
        for name, row in task.rows.items():
            if row.extractor and row.extractor not in rules:
                cause = f"no rule '{row.extractor}' reads replies for '{task.family.name}'"
                yield f"filter_list, '{name}': {cause}; {_COPY_BLOCK}"
    yield from _metric_problems(task.family, config.get("metric_list"))


def _filter_problems(config: Config) -> Problems:
    """Yield why filters cannot be made."""
    for location, step in _filter_steps(config):
        arguments = dict(step)
        function = arguments.pop("function")
        if isinstance(function, str):  # a filter of lmms-eval
            continue
        try:
            function(**arguments)
        except MedTasksError as error:
            yield f"{location}: {error}"
        except Exception as error:  # noqa: BLE001 - a filter may be the user's own
            parameters = inspect.signature(function).parameters
            unknown = [argument for argument in arguments if argument not in parameters]
            hints = (near_match(argument, parameters) for argument in unknown)
            hint = next(filter(None, hints), "; correct its arguments")
            yield f"{location}: the filter cannot be made ({one_line(error)}){hint}"


def _filter_steps(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield the steps of all pipelines of filters, each after the location that messages name."""
    for pipeline in config.get("filter_list") or ():
        for step in pipeline["filter"]:
            yield f"filter_list, '{pipeline['name']}'", step


def _metric_problems(family: TaskFamily, listed: Any) -> Problems:
    """Yield the faults of a metric list, such as a metric that the family does not have."""
    if not isinstance(listed, list):
        yield f"'metric_list' has to name the metrics of '{family.name}'; {_COPY_BLOCK}"
        return
    names = [metric.name for metric in family.metrics]
    unknown = sorted({str(entry["metric"]).removesuffix(STDERR) for entry in listed} - {*names})
    if unknown:
        hint = near_match(unknown[0], names) or f"; it has {', '.join(names)}"
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        yield f"metric_list: '{family.name}' has no metric '{unknown[0]}'{more}{hint}"


def _missing_columns(task: TaskFile, written: Config, document: Document) -> Problems:
    """Yield missing columns of a sample: those of ``breakdown``, and the options that filters of ours read among."""
    for column in task.breakdown:
        if column not in document:
            hint = near_match(column, document) or f"; there are {', '.join(document)}"
            yield f"breakdown: {location_of(written)} has no column '{column}'{hint}"
    for location, step in _filter_steps(written):
        rule = str(step.get("rule") or "")
        if step["function"] == f"{HOOKS}filters.ReadWith" and lacks_options(rule, document):
            yield f"{location}: {NO_OPTIONS.format(rule)}"


def _different_images(task: TaskFile, other: str) -> Problems:
    """Yield why a task cannot be compared on the same images with the ``other`` one, which its metadata name."""
    if other not in task_files():
        yield f"same_as: {unknown_name('task', other, task_files(), 'medtasks tasks')}"
        return
    images = [
        {*images_by_id(task_documents(each)).values()} for each in (task, task_file(other))
    ]
    if not images[0] & images[1]:
        yield (
            f"same_as: '{other}' asks about none of its images; both need a column image_id, or files of the same "
            "names"
        )


def images_by_id(documents: Documents) -> dict[str, str]:
    """Return the image of each document that has one, by ``doc_id``.

    Example:
        >>> images_by_id([{"doc_id": 1, "image_id": "ct.png"}, {"doc_id": 2}])
        {'1': 'ct.png'}
    """
    with_image = [document for document in documents if document.get("image_id") is not None]
    return {str(document["doc_id"]): str(document["image_id"]) for document in with_image}


def _prompt_problems(config: Config, document: Document, *, private: bool) -> Problems:
    """Yield why the prompt of a sample cannot be made, with the settings of each model family."""
    settings = mapping_in(config, SETTINGS).values()
    blocks: list[Any] = [block for block in settings if isinstance(block, Mapping)]
    if not blocks:  # the settings are for all model families, or there are none
        blocks = [config.get(SETTINGS)]
    if is_our_hook(config.get("doc_to_text")):
        yield from _misspelt_settings(config, blocks)
    for key in _PROMPT:
        hook = config.get(key)
        if key in _TEXTS and isinstance(hook, str) and hook not in document:
            # The text is a template of lmms-eval's own kind, or a column's name.
            yield from _unknown_columns(key, hook, document)
        # Hooks of ours open images, which others check.
        if callable(hook) and not (key in _OPENING and is_our_hook(hook)):
            yield from _hook_failures(key, hook, document, blocks, private=private)


def _misspelt_settings(config: Config, blocks: Sequence[Any]) -> Problems:
    """Yield the settings of a prompt that are unknown, but have nearly the name of a known one."""
    valid = {*_PROMPT_SETTINGS, *names_in_templates(mapping_in(config, SETTINGS))}
    names = set[str]()
    for block in blocks:
        names.update(map(str, block or ()))
    for name in sorted(names - valid):
        if hint := near_match(name, _PROMPT_SETTINGS):
            yield f"{SETTINGS}: no setting is called '{name}'{hint}"


def _unknown_columns(key: str, text: str, document: Document) -> Problems:
    """Yield the columns that a prompt needs and the sample lacks.

    Args:
        key: Key of the prompt in the task's file.
        text: A template of lmms-eval, or a text that may be meant as the name of a column.
        document: The sample.
    """
    names = set[str]()
    if "{" in text:
        names = set(names_in_template(text))
    elif near_match(text, document):
        names = {text}
    for name in sorted(names - set(document)):
        hint = near_match(name, document) or f"; there are {', '.join(document)}"
        yield f"{key}: there is no column '{name}'{hint}"


def call_hook(
    hook: Hook,
    document: Document,
    settings: Any,
    *,
    always: bool = False,
) -> Any:
    """Call a hook of a prompt as the harness does.

    Args:
        hook: Function of a document and, if it has a second parameter, of settings.
        document: The sample.
        settings: Settings of a model family. If they are None, the hook gets the document alone.
        always: Whether the harness hands over settings whatever the parameters are.
    """
    takes_settings = always or len(inspect.signature(hook).parameters) > 1
    if takes_settings and settings is not None:
        return hook(document, settings)
    return hook(document)


def _hook_failures(
    key: str,
    hook: Hook,
    document: Document,
    blocks: Sequence[Any],
    *,
    private: bool,
) -> Problems:
    """Yield why a hook fails on a sample, called with each block of settings as the harness calls it."""
    for settings in blocks:
        try:
            call_hook(hook, document, settings, always=key == "doc_to_text")
        except (JudgeNotConfigured, JudgeRefused):
            pass  # no fault of the task
        except MedTasksError as error:
            yield f"{key}: {error}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the hook may be the user's own
            cause = type(error).__name__ if private else one_line(error)
            yield f"{key}: the hook fails on the first sample ({cause}); correct it, or the file's columns"
