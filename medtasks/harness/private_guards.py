"""Options and models of the harness that would carry text of patients' records out of what our hooks control."""

import os
from collections.abc import Iterator
from string import Template

from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.errors import ModelRefused
from medtasks.harness.guarded_run import GuardedRun, listed, refuse, warn
from medtasks.harness.manifest import Notice
from medtasks.harness.model_places import destinations
from medtasks.harness.remote_models import check_model, credentialed

_NO = ("", "0", "false", "none")


def leaking_options(run: GuardedRun) -> Iterator[Notice]:
    """Refuse options that print, cache or upload text of credentialed datasets.

    The harness's samples file is safe: there our hooks overwrite the text (:mod:`medtasks.hooks.withheld`).
    """
    private = sorted({dataset for dataset in run.datasets.values() if is_private(dataset)})
    for option, does in _leaks(run) if private else ():
        yield refuse(
            f"{option} {does}, and text of credentialed data ({listed(private)}) must not leave what this package "
            f"controls; leave the option out, or allow it by name with {LOG_TEXT_VARIABLE}={','.join(private)}"
        )


def remote_model(run: GuardedRun) -> Iterator[Notice]:
    """Refuse a model that would send questions of credentialed datasets to another machine."""
    private = credentialed(run.datasets.values())
    if not private:
        return
    environment = dict(os.environ)
    for name, value in run.options.environment.items():  # the harness replaces variables in the file's values, too
        environment[name] = Template(value).safe_substitute(environment)
    options, model = run.options, run.options.text("model") or "hf"
    goes_to = destinations(model, options.model_arguments(), environment, force_simple=options.flag("force_simple"))
    try:
        check_model(model, goes_to, private, environment)
    except ModelRefused as error:
        yield refuse(str(error))


def stale_caches(run: GuardedRun) -> Iterator[Notice]:
    """Warn of the harness's caches, which do not see that a picture or a dataset has changed."""
    if run.options.text("use_cache"):
        yield warn(
            "--use_cache finds a reply by the text of its request, so after a change of pictures it gives an old one; "
            "leave it out (our models keep a journal that tells pictures apart), or use a new folder for each dataset"
        )
    if run.options.text("cache_requests") in ("true", "True"):
        yield warn(
            "--cache_requests true finds prompts by the name of the task, so after a change of data it gives "
            "the old ones; leave it out, or give --cache_requests refresh"
        )


def _leaks(run: GuardedRun) -> Iterator[tuple[str, str]]:
    options = run.options
    if options.text("use_cache"):
        yield "--use_cache", "writes replies into a database"
    if options.text("cache_requests").lower() not in (*_NO, "delete"):
        yield "--cache_requests", "writes documents and prompts into a folder of the harness's installation"
    if options.flag("write_out"):
        yield "--write_out", "prints prompts and keys"
    if options.flag("wandb_log_samples"):
        yield "--wandb_log_samples", "uploads samples to Weights & Biases"
    if options.flag("swanlab_log_samples"):
        yield "--swanlab_log_samples", "uploads samples to SwanLab"
    if options.pairs("hf_hub_log_args").get("push_samples_to_hub", "").strip().lower() not in _NO:
        yield "--hf_hub_log_args push_samples_to_hub", "uploads the results folder with its samples to the Hub"
