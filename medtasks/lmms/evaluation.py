"""The harness's evaluation, guarded: checks before the first request, shards, and a sentence on failures after it.

The harness has no hooks for these, so its ``evaluate`` is wrapped. A run without our tasks stays as it is, except for
a shard, and tasks of likelihoods, which the harness cannot score itself.
"""

import contextlib
import inspect
import os
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

from medtasks.data.looks import LOOK_VARIABLE, Look
from medtasks.data.privacy import is_private
from medtasks.data.shards import SHARD_VARIABLE, Shard, clusters_of
from medtasks.errors import MedTasksError, join_names
from medtasks.lmms import AnyFunction, replace_attribute, wrap_once
from medtasks.lmms.foreign_tasks import score_as_intended
from medtasks.lmms.harness_process import end_after, say
from medtasks.lmms.prompt_family import check_family
from medtasks.runs.logged_samples import (
    SCORED_SETTINGS,
    SCORED_TASK,
    faults_of_saving,
    without_scoring,
)
from medtasks.runs.reply_origins import ASK_ANEW, COPIED, ORIGIN, ReplyOrigins, SampleOrigins
from medtasks.runs.result_files import NOTICES, SERVED_MODEL
from medtasks.runs.sample_counts import counts_of
from medtasks.tasks.own_documents import is_our_hook
from medtasks.tasks.question_files import datasets_of_files
from medtasks.tasks.task_files import few_shot_problems

HarnessTasks = Mapping[str, Any]  # by name
# set by torchrun, and by accelerate where it starts several processes
_UNDER_AGENT = "TORCHELASTIC_RUN_ID"
# marks a request whose reply is not used, for the harness and for adapters
_PADDING = "__padding_only__"
_NO_ROW = -1


def guard_evaluation(module: ModuleType) -> None:
    """Wrap ``evaluate`` of the harness's evaluator, or of lm-eval's, once.

    Args:
        module: ``lmms_eval.evaluator`` or ``lm_eval.evaluator``.

    Raises:
        AttributeError: This version of the harness has no such function.
        TypeError: It takes other arguments.
    """
    missing = {"lm", "task_dict"} - inspect.signature(module.evaluate).parameters.keys()
    if missing:
        raise TypeError(f"{module.__name__}.evaluate lacks {' and '.join(sorted(missing))}")
    wrap_once(module, "evaluate", _guarded_evaluate)


def _guarded_evaluate(evaluate: AnyFunction, *args: Any, **kwargs: Any) -> Any:
    """Call the harness's ``evaluate`` with our guards around it.

    Returns:
        The harness's results with what we record in them, None in all processes but the first.

    Raises:
        MedTasksError: A check before the first request fails. A ModelRefused is one of credentialed data.
        SystemExit: An error ended the evaluation in one of torchrun's processes.
    """
    from medtasks.lmms.remote_models import private_calls, refuse_remote_model

    options = inspect.signature(evaluate).bind(*args, **kwargs).arguments
    lm = options["lm"]
    tasks = dict(_tasks(options["task_dict"]))
    _keep_text_out_of_logs(tasks)
    ours: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, task in tasks.items():
        (ours if _is_ours(task) else others)[name] = task
    is_lmms = evaluate.__module__.startswith("lmms_eval.")
    _refuse_examples(ours, options, is_lmms=is_lmms)
    shard = _part_from_environment(options, is_lmms=is_lmms)
    check_family(lm, tasks.values())
    datasets = datasets_of(tasks, ours)
    refuse_remote_model(lm, datasets)
    # A model of ours may quote no private text in errors, and a served one tells instructions from data by its tasks.
    if hasattr(lm, "quote_errors"):
        lm.quote_errors(allowed=not any(map(is_private, datasets)))
    if hasattr(lm, "harness_tasks"):
        lm.harness_tasks = tasks
    getattr(lm, "copied", set()).clear()
    origins: SampleOrigins = {}
    with (
        _end_under_agent(options),
        private_calls(lm, datasets),
        _asking_only(shard, tasks) as rows,
        _watch(lm, ours, origins),
        score_as_intended(others if is_lmms else {}),
    ):
        results = evaluate(*args, **kwargs)
    if ours:  # shards share images, so their counts would not add up
        _record_images(results, ours if shard is None else {})
    origins = _gather_entries(origins | dict.fromkeys(getattr(lm, "copied", ()), COPIED))
    _record_notices(results)
    if results is not None:  # only the first of several processes has them
        # A sample that the harness's response cache answers leaves the model no request.
        cached = ours if options.get("response_cache") is not None else {}
        _record_origins(results, origins, cached)
        _annotate(results, lm, ours, shard, rows)
    return results


@contextlib.contextmanager
def _end_under_agent(options: Mapping[str, Any]) -> Iterator[None]:
    """End one of torchrun's processes after an error within the block.

    The harness would end with 0, which torchrun takes for success: the other processes would wait in vain.
    """
    try:
        yield
    except Exception as error:
        if _UNDER_AGENT not in os.environ:
            raise
        end_after(error, debug=options.get("verbosity") == "DEBUG")


def _keep_text_out_of_logs(tasks: HarnessTasks) -> None:
    """Replace the metric ``bypass``, which --predict_only puts in place of a task's hook."""
    for task in tasks.values():
        metrics = getattr(task.config, "metric_list", None) or ()
        if [entry.get("metric") for entry in metrics] == ["bypass"]:
            task.config.process_results = without_scoring


def _is_ours(task: Any) -> bool:
    """Return whether a task of the harness is scored by one of our hooks."""
    return is_our_hook(getattr(task.config, "process_results", None))


def _refuse_examples(
    ours: HarnessTasks,
    options: Mapping[str, Any],
    *,
    is_lmms: bool,
) -> None:
    """Raise MedTasksError for few-shot examples that tasks of ours do not have.

    lmms-eval would fail or ignore the option without a word, and lm-eval would show the asked question with its answer.

    Args:
        ours: Our tasks, by name.
        options: Arguments of the harness's ``evaluate``.
        is_lmms: Whether the harness is lmms-eval, else it is lm-eval.
    """
    asked_for = getattr(options.get("cli_args"), "num_fewshot", None)
    configs = {}
    for name, task in ours.items():
        number = getattr(task.config, "num_fewshot", None) or 0
        # lm-eval has an object there for every task.
        sampler = getattr(task.config, "fewshot_config", None) if is_lmms else None
        if asked_for or number:
            configs[name] = {"num_fewshot": number, "fewshot_config": sampler}
    for problem in few_shot_problems(configs):
        raise MedTasksError(problem)


def _part_from_environment(options: Mapping[str, Any], *, is_lmms: bool) -> Shard | Look | None:
    """Return the part of the rows to ask, None for all.

    Raises:
        MedTasksError: Options also choose rows of a shard, or the harness is lm-eval. 'medtasks run' refuses earlier.
    """
    look = os.environ.get(LOOK_VARIABLE)
    if look:
        return Look.parse(look)
    shard = Shard.from_environment()
    if shard is None:
        return None
    if not is_lmms:
        raise MedTasksError(
            f"{SHARD_VARIABLE}={shard} is for runs of lmms_eval; unset it for lm_eval"
        )
    if (
        options.get("limit") not in (None, -1)
        or options.get("offset")
        or options.get("cache_requests")
    ):
        raise MedTasksError(
            f"{SHARD_VARIABLE}={shard} chooses the rows, so that --limit, --offset and --cache_requests have to go"
        )
    return shard


def datasets_of(tasks: HarnessTasks, ours: HarnessTasks) -> set[str]:
    """Return the names of prepared datasets that tasks ask, by which their text may be private.

    Args:
        tasks: All tasks of the run, by name.
        ours: Those of them that are ours.
    """
    datasets = set()
    for name, task in tasks.items():
        datasets |= datasets_of_files(vars(task.config))
        if name not in ours:
            continue
        names = [(getattr(task.config, "metadata", None) or {}).get("dataset")]
        documents: Any = getattr(task, "eval_docs_no_media", ())
        if not hasattr(documents, "unique"):
            names += [document.get("dataset") for document in documents]
        # Documents of the datasets library, which need not read the rows.
        elif "dataset" in documents.column_names:
            names += documents.unique("dataset")
        datasets |= {str(dataset) for dataset in names if dataset}
    return datasets


def _gather(part: Any) -> list[Any]:
    """Return the parts of all processes of the harness, in the order of their ranks. Each process calls this."""
    from torch import distributed

    if not distributed.is_initialized():
        return [part]
    parts: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(parts, part)
    return parts


def _gather_entries(entries: Mapping[Any, Any]) -> dict[Any, Any]:
    """Join the mappings of all processes, see :func:`_gather`. Of entries with one key, the highest rank's counts."""
    gathered: dict[Any, Any] = {}
    for part in _gather(entries):
        gathered |= part
    return gathered


def _record_notices(results: Any) -> None:
    """Record in the results why replies could not be saved, in any process.

    Args:
        results: The harness's results, None in all processes but the first.
    """
    notices = list(chain.from_iterable(_gather(faults_of_saving())))
    if notices and results is not None:
        results[NOTICES] = notices


def _record_origins(
    results: Mapping[str, Any],
    origins: SampleOrigins,
    cached: Collection[str],
) -> None:
    """Record the replies that were not asked for in this run, in the samples that the harness will write.

    Their numbers are printed. Samples of ``cached`` tasks without a request are answered by the harness's response
    cache.
    """
    for name, samples in (results.get("samples") or {}).items():
        by_row = {}
        for sample in samples:
            row = int(sample["doc_id"])
            origin = origins.get((name, row), COPIED if name in cached else "")
            by_row[row] = origin
            if origin:
                sample[ORIGIN] = origin
        counts = ReplyOrigins.of(by_row.values())
        if counts.copied:
            say(f"{name}: {counts}; {ASK_ANEW}")
        elif counts.kept:
            say(f"{name}: {counts}")


def _tasks(task_dict: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and object of each task in the harness's mapping, in which groups hold mappings of their own."""
    for name, entry in task_dict.items():
        task = entry[1] if isinstance(entry, tuple) else entry
        if isinstance(task, Mapping):
            yield from _tasks(task)
        elif getattr(task, "config", None) is not None:
            yield str(name), task


@contextlib.contextmanager
def _watch(
    lm: Any,
    ours: HarnessTasks,
    origins: SampleOrigins,
) -> Iterator[None]:
    """Mark failed replies to our tasks, and record the origins of replies and the task that is being scored.

    Args:
        lm: Model of the harness.
        ours: Our tasks, by name. Without any, nothing is watched.
        origins: Gets the origins of replies, by task and row.
    """
    if not ours:
        yield
        return
    from medtasks.lmms.earlier_replies import kept_replies
    from medtasks.lmms.model_failures import watch_replies

    def score_task(
        name: str,
        score: AnyFunction,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Score a sample while its hook can look up the name and settings of its task."""
        before = SCORED_TASK.set(name)
        settings = SCORED_SETTINGS.set(
            getattr(ours[name], "lmms_eval_specific_kwargs", None) or {}
        )
        try:
            return score(*args, **kwargs)
        finally:
            SCORED_SETTINGS.reset(settings)
            SCORED_TASK.reset(before)

    with contextlib.ExitStack() as stack:
        for name, task in ours.items():
            if hasattr(task, "process_results"):
                score = partial(score_task, name, task.process_results)
                stack.enter_context(replace_attribute(task, "process_results", score))
        stack.enter_context(watch_replies(lm, ours, kept_replies(ours), origins))
        yield


def _record_images(results: Mapping[str, Any] | None, tasks: HarnessTasks) -> None:
    """Record how images and volumes were shown in the results of each task, and warn of nearly flat ones.

    Args:
        results: The harness's results, None in all processes but the first, which only send what they opened.
        tasks: Tasks whose results get the record, by name.
    """
    from medtasks.data.dataset_manifest import SHOWN_VOLUMES
    from medtasks.data.images.decoding import NEARLY_FLAT
    from medtasks.prompts.images import OPENED, image_keys

    opened_here = dict(OPENED)
    OPENED.clear()
    opened = _gather_entries(opened_here)
    if results is None or not opened:
        return
    if flat := [image.name for image in opened.values() if NEARLY_FLAT in image.conversions]:
        say(f"{len(flat)} of {len(opened)} images are {NEARLY_FLAT} ({join_names(flat)})")
    for name, task in tasks.items():
        keys = image_keys(task)
        if keys.isdisjoint(opened):
            continue
        facts = _facts_of_images(keys, opened)
        config = results.get("configs", {}).get(name, {})
        metadata = config.get("metadata") or {}
        # Of a prepared dataset the manifest says all but how volumes are shown.
        data = dict(metadata.get("data", facts))
        if SHOWN_VOLUMES in facts:
            data[SHOWN_VOLUMES] = facts[SHOWN_VOLUMES]
        config["metadata"] = {**metadata, "data": data}


def _facts_of_images(keys: Set[Any], opened: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the rules by which images and volumes of a task were shown, and how many of them how.

    Those of ``keys`` that were not ``opened``, such as images of replies from an earlier run, are counted.
    """
    from medtasks.data.dataset_manifest import SHOWN_VOLUMES, counted_conversions
    from medtasks.data.images.decoding import Decoding

    shown = keys & opened.keys()
    decodings = set()
    volumes = []
    for rule in {rule for _, rule in shown}:
        if isinstance(rule, Decoding):
            decodings.add(rule.rule)
        else:
            volumes.append(str(rule))
    counts = counted_conversions(opened[key].conversions for key in shown)
    if keys - shown:
        counts["not opened in this run"] = len(keys - shown)
    rule = " and ".join(sorted(decodings)) or "volumes"
    facts = {"image_rule": rule, "image_conversions": counts}
    if volumes:
        facts[SHOWN_VOLUMES] = " and ".join(sorted(volumes))
    return facts


def _annotate(
    results: dict[str, Any],
    lm: Any,
    ours: HarnessTasks,
    shard: Shard | Look | None,
    rows: Mapping[str, int],
) -> None:
    """Add the shard, the served model and remarks of ours to the harness's results, and report lost samples.

    Args:
        results: The harness's results.
        lm: Its model.
        ours: Our tasks, by name.
        shard: The part of the rows that was asked, None for all.
        rows: Number of rows of the part, by task.
    """
    remarks = []
    if shard is not None:
        kind = "PARTIAL, LOOK" if isinstance(shard, Look) else "SHARD"
        remarks.append(f"[{kind} {shard.index}/{shard.count}]")
        _record_shard(results, shard, rows)
    if facts := getattr(lm, "facts", None):  # the server's description of a model of ours
        results[SERVED_MODEL] = dict(facts)
    if remark := getattr(lm, "remark", ""):  # a model of ours may qualify its scores
        remarks.append(f"[{remark}]")
    scores = results.get("results") or {}
    groups = results.get("groups") or {}
    for row in chain(scores.values(), groups.values()):
        if "alias" in row:
            row["alias"] = " ".join([row["alias"], *remarks])
    lost = []
    for name in ours:
        counts = counts_of(scores.get(name, {}))
        if counts and counts.lost:
            lost.append(f"{name}: {counts}")
    if lost:
        say(f"samples without a reply or a verdict are in no score. {'; '.join(lost)}.")


def _record_shard(
    results: Mapping[str, Any], shard: Shard | Look, rows: Mapping[str, int]
) -> None:
    """Record how many rows of each task a part asked, and say how shards are joined."""
    for task, count in rows.items():
        results["n-samples"][task]["effective"] = count
    if isinstance(shard, Look):
        return
    empty = [task for task, count in rows.items() if not count]
    none = f", and there is none of {join_names(empty)}" if empty else ""
    say(
        f"this is shard {shard}: its scores are of {sum(rows.values())} rows alone{none}; join all {shard.count} "
        f"with: medtasks merge OUT SHARD..."
    )


# ---- shards: all tasks, ours or not, build only the requests of their rows in the shard ----
#
# The harness's own --offset and --limit are one value for all tasks. Its loop over documents skips those without a
# request, so that rows keep their numbers, on every rank.


@contextlib.contextmanager
def _asking_only(shard: Shard | Look | None, tasks: HarnessTasks) -> Iterator[dict[str, int]]:
    """Let the harness's tasks ask only the rows of a part within the block, and yield their number by task.

    Without a part (None) all rows are asked, and no number is yielded.
    """
    if shard is None:
        yield {}
        return
    counts = {}
    for name, task in tasks.items():
        documents = task.eval_docs_no_media
        clusters: Sequence[int] = range(len(documents))  # those of others are unknown
        if _is_ours(task) or datasets_of_files(vars(task.config)):
            clusters = clusters_of(documents)
        rows = frozenset(shard.rows(clusters))
        task.build_all_requests = partial(_build_requests, task, task.build_all_requests, rows)
        counts[name] = len(rows)
    try:
        yield counts
    finally:
        for name in counts:
            del tasks[name].build_all_requests


def _build_requests(
    task: Any,
    build_all: Callable[..., None],
    rows: Collection[int],
    **options: Any,
) -> None:
    """Build the requests of a harness's task for some rows only.

    A rank without any pads, as in the harness.
    """
    task._instances = []
    if not rows:  # on all ranks: the harness's own function would raise
        return
    build_all(**options)
    requests = []
    for request in task._instances:
        if request.doc_id in rows and not (request.metadata or {}).get(_PADDING):
            requests.append(request)
    task._instances = requests or _pad_with_first_row(task._instances)


def _pad_with_first_row(requests: Sequence[Any]) -> list[Any]:
    """Return the requests of the first one's row, marked as padding, whose replies belong to no row."""
    first = requests[0].doc_id
    padding = [request for request in requests if request.doc_id == first]
    for request in padding:
        request.metadata = {**(request.metadata or {}), _PADDING: True}
        request.doc_id = _NO_ROW
    return padding
