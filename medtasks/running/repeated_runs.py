"""Arguments of the harness for repeats of a run with other seeds (``medtasks run --repeats``).

The harness's own repeats (``--num_samples``) ask one model with one seed: servers with a seed would answer alike, and
the samples file keeps all replies to one question as one. Here each repeat is a run of its own, with its own manifest,
samples and failures, in the folder ``repeat_<number>``.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from medtasks.errors import MedTasksError, listed
from medtasks.lmms.remote_models import class_path_of
from medtasks.net.journal import journal_folder
from medtasks.running.harness_run import wanted_tasks
from medtasks.runs.harness_options import HarnessOptions, read_options, seeds
from medtasks.runs.run_manifest import Notice, refuse
from medtasks.tasks.task_files import task_config, task_file, tasks_of
from medtasks.tasks.task_index import mapping_in

_OUR_MODELS = "medtasks."
_SENDING_SEEDS = ("lmms_eval.models.chat.openai", "lmms_eval.models.simple.vllm")  # models with a seed per request


def repeat_seed(arguments: Sequence[str], number: int) -> int:
    """Return PyTorch's seed in a repeat, counted from 1: that of ``--seed`` in the first, then one more each time."""
    return (seeds(read_options(arguments))[2] or 0) + number - 1


def seeded(arguments: Sequence[str], number: int) -> list[str]:
    """Return the arguments of the harness for a repeat, counted from 1; the first has the original seeds.

    Seeds go up by one: those of Python, NumPy and PyTorch, ``seed`` in ``--model_args`` for our models, and ``seed`` in
    ``--gen_kwargs`` for the harness's models that send it to a server. Few-shot examples stay the same.
    """
    options, added = read_options(arguments), number - 1
    *others, examples = seeds(options)
    raised = [str((seed or 0) + added) for seed in others]
    changed = [*arguments, "--seed", ",".join([*raised, str(examples)])]
    module = class_path_of(options.text("model"), force_simple=options.flag("force_simple")).rpartition(".")[0]
    if module.startswith(_OUR_MODELS):
        pairs = options.written_model_arguments()
        changed += ["--model_args", _joined({**pairs, "seed": str(_number(pairs.get("seed"), 0) + added)})]
    elif module in _SENDING_SEEDS:
        pairs = options.pairs("gen_kwargs")
        changed += ["--gen_kwargs", _joined({**pairs, "seed": str(_number(pairs.get("seed"), others[2] or 0) + added)})]
    return changed


def _joined(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise MedTasksError(f"seed={text} is no whole number; give one, or leave it out") from error


def repeat_notices(names: Sequence[str], options: HarnessOptions, repeats: int) -> Iterator[Notice]:
    """Yield the problems of repeats of tasks, groups and tags before they begin."""
    if (options.number("repeats") or 1) > 1:
        yield refuse(
            "--num_samples asks the harness for repeats, of which our tasks read the first alone; give --repeats "
            "N to 'medtasks run' in its place, on its command line"
        )
    if repeats < 2:
        return
    if options.text("use_cache"):
        yield refuse("--use_cache may answer every repeat with the replies of the first; leave it out")
    alike = [task for task in wanted_tasks(names) if tasks_of(task) and not _is_sampled(task, options)]
    if alike:
        sampling = _joined({**options.pairs("gen_kwargs"), "temperature": "0.6", "do_sample": "true"})
        yield refuse(
            f"--repeats {repeats} would get the same answers {repeats} times from {listed(alike)}, decoded at "
            f"temperature 0 or compared by likelihood; sample them with --gen_kwargs {shlex.quote(sampling)}, or leave "
            f"--repeats out"
        )


def _is_sampled(name: str, options: HarnessOptions) -> bool:
    if task_file(name).compares_likelihoods:
        return False
    settings = {**mapping_in(task_config(name), "generation_kwargs"), **options.pairs("gen_kwargs")}
    try:
        is_warm = float(settings.get("temperature", 0)) > 0
    except (TypeError, ValueError):
        is_warm = False
    return is_warm and str(settings.get("do_sample", True)).lower() not in ("false", "0", "none")


def repeat_variables(variables: Mapping[str, str], arguments: Sequence[str], number: int) -> dict[str, str]:
    """Return the harness's environment variables for a repeat, with a journal of its own."""
    if not variables:
        return {}
    # Imported here because it imports the harness, which runs without a journal do not need.
    from medtasks.lmms.server_journal import JOURNAL_VARIABLE

    folder = journal_folder(variables[JOURNAL_VARIABLE], f"seed_{repeat_seed(arguments, number)}")
    return {**variables, JOURNAL_VARIABLE: str(folder)}
