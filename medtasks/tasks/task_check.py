"""Check a task of the user's own before a run: keys, hooks, filters, metrics, and the prompt of its first sample.

Hooks of the user's own are imported. Neither the harness nor a model is started.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.document_store import open_documents
from medtasks.data.privacy import is_private
from medtasks.data.schema import SPLIT
from medtasks.errors import JudgeNotConfigured, JudgeRefused, MedTasksError, near_match, one_line
from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.families.templates import names_in_template
from medtasks.metrics.metric import STDERR
from medtasks.tasks.own_documents import completed, is_our_hook, own_table
from medtasks.tasks.published_names import published_names
from medtasks.tasks.task_file import TaskFile, names_in_templates
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import LOCAL_LOADERS, SETTINGS, DottedName, mapping_in, resolved

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
    "demonstrations slices no_finding"
).split()
_BLOCKS = "copy it from a block of docs/own_tasks.md"
_TEXTS = ("doc_to_text", "doc_to_target")
_OPENING = ("doc_to_visual", "doc_to_messages")  # hooks that open images
_PROMPT = (*_TEXTS, "doc_to_choice", *_OPENING)
_FUNCTIONS = (*_PROMPT, "process_docs", "process_results")

Config = Mapping[str, Any]


def check_task(task: TaskFile) -> None:
    """Raise a MedTasksError for the first problem of a task's file, or of the file of which it is a variant."""
    config = task_config(task.base or task.name)
    if any(is_our_hook(config.get(key)) for key in _FUNCTIONS) and (problem := next(task_problems(task), "")):
        raise MedTasksError(problem)


def task_problems(task: TaskFile, *, download: bool = False) -> Iterator[str]:
    """Yield the problems that would stop a run of a task, one sentence each; later checks need earlier ones to pass.

    The first sample of a dataset that is not on this machine is checked only if it may be downloaded. Raises
    MedTasksError where documents cannot be loaded or lack columns that hooks need.
    """
    task = task if task.base is None else task_file(task.base)
    written = task_config(task.name)
    misspelt = [(key, near_match(str(key), KEYS)) for key in written if key not in KEYS]
    problems = [f"no key is called '{key}'{hint}" for key, hint in misspelt if hint]
    config: dict[str, Any] = {}
    for key in written.keys() - {"dataset_path"}:
        try:
            config[key] = resolved(written[key], _loaded)
        except MedTasksError as error:
            problems.append(f"{key}: {error}")
            continue
        if key in _FUNCTIONS and isinstance(written[key], DottedName) and not callable(config[key]):
            problems.append(f"{key}: '{written[key]}' is no function; name one")
    problems = problems or list(_scoring_problems(task, config))
    document: Mapping[str, Any] | None = None  # the first sample as the harness hands it to hooks
    if not problems and task.dataset is not None:
        document = dict(open_documents(task.dataset)[SPLIT][0])
    elif not problems and (download or written.get("dataset_path") in LOCAL_LOADERS):
        document = dict(completed(own_table(task.name, written), written)[0])
    if document is not None:
        names = (task.guarded_as, document.get("dataset"))
        private = any(is_private(str(name)) for name in names if name is not None)
        problems = list(_prompt_problems(config, document, private=private))
    yield from (f"the task file {task.path}: {problem}" for problem in dict.fromkeys(problems))


def unknown_keys(task: TaskFile) -> list[str]:
    """Return the keys of a task's file that are unknown and like no other; a newer harness may know them."""
    return [str(key) for key in task_config(task.name) if key not in KEYS and not near_match(str(key), KEYS)]


def _loaded(name: DottedName) -> Any:
    """Import the object that a dotted name means; raise MedTasksError, with the nearest name, if it does not exist."""
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
            raise MedTasksError(f"'{name}' cannot be imported ({one_line(error)}); correct {module}") from error
        hint = near_match(name, [*names, *published_names()]) or f"; {module}.py next to the task's file can define it"
        raise MedTasksError(f"'{name}' does not exist{hint}") from error


def _scoring_problems(task: TaskFile, config: Config) -> Iterator[str]:
    """Yield problems of filters, rules and metrics."""
    steps = [(pipeline["name"], step) for pipeline in config.get("filter_list") or () for step in pipeline["filter"]]
    failed = [f"filter_list, '{name}': {problem}" for name, step in steps if (problem := _filter_problem(**step))]
    yield from failed
    if not task.has_family:
        return
    if not isinstance(config.get("metadata") or {}, Mapping):
        yield "'metadata' is a list; write it as a mapping, such as metadata: {version: 1}"
    family, listed = task.family, config.get("metric_list")
    rules = extractors(AnswerKind.LIKELIHOODS if task.compares_likelihoods else family.kind)
    for name, row in {} if failed else task.rows.items():
        if row.extractor and row.extractor not in rules:
            yield f"filter_list, '{name}': no rule '{row.extractor}' reads replies for '{family.name}'; {_BLOCKS}"
    if not isinstance(listed, list):
        yield f"'metric_list' has to name the metrics of '{family.name}'; {_BLOCKS}"
        return
    names = [metric.name for metric in family.metrics]
    if unknown := {str(entry["metric"]).removesuffix(STDERR) for entry in listed} - {*names}:
        hint = near_match(min(unknown), names) or f"; it has {', '.join(names)}"
        more = f" (and {len(unknown) - 1} more)" if unknown - {min(unknown)} else ""
        yield f"metric_list: '{family.name}' has no metric '{min(unknown)}'{more}{hint}"


def _filter_problem(function: Any, **arguments: Any) -> str:
    """Return why a filter cannot be made, empty if it can."""
    if isinstance(function, str):  # a filter of lmms-eval
        return ""
    try:
        function(**arguments)
    except MedTasksError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a filter may be the user's own
        parameters = inspect.signature(function).parameters
        hints = (near_match(name, parameters) for name in arguments if name not in parameters)
        return f"the filter cannot be made ({one_line(error)}){next(filter(None, hints), '; correct its arguments')}"
    return ""


def _prompt_problems(config: Config, document: Mapping[str, Any], *, private: bool) -> Iterator[str]:
    """Yield why the prompt of a sample cannot be made, with the settings of each model family."""
    settings = config.get(SETTINGS)
    by_model: list[Any] = [each for each in mapping_in(config, SETTINGS).values() if isinstance(each, Mapping)]
    if is_our_hook(config.get("doc_to_text")):
        valid = {*_PROMPT_SETTINGS, *names_in_templates(mapping_in(config, SETTINGS))}
        unknown = {str(key) for each in by_model or [settings or {}] for key in each} - valid
        hints = {key: near_match(key, _PROMPT_SETTINGS) for key in sorted(unknown)}
        yield from (f"{SETTINGS}: no setting is called '{key}'{hint}" for key, hint in hints.items() if hint)
    for key in _PROMPT:
        hook = config.get(key)
        if key in _TEXTS and isinstance(hook, str):
            yield from (f"{key}: {problem}" for problem in _template_problems(hook, list(document)))
        elif callable(hook) and not (key in _OPENING and is_our_hook(hook)):  # ours open images, which others check
            for each in by_model or [settings]:
                takes_settings = key == "doc_to_text" or len(inspect.signature(hook).parameters) > 1
                try:  # as the harness asks it
                    hook(document, each) if each is not None and takes_settings else hook(document)
                except (JudgeNotConfigured, JudgeRefused):
                    pass  # no fault of the task
                except MedTasksError as error:
                    yield f"{key}: {error}"
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the hook may be the user's own
                    cause = type(error).__name__ if private else one_line(error)
                    yield f"{key}: the hook fails on the first sample ({cause}); correct it, or the file's columns"


def _template_problems(template: str, columns: Sequence[str]) -> Iterator[str]:
    """Yield the unknown columns in a template of lmms-eval's own kind, or in a column's name without braces."""
    if template not in columns:
        names = names_in_template(template) if "{" in template else {template} if near_match(template, columns) else ()
        for name in sorted(set(names) - set(columns)):
            yield f"there is no column '{name}'{near_match(name, columns) or '; there are ' + ', '.join(columns)}"
