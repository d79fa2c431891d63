"""``medtasks metrics`` and ``weights``: score report texts in files, and get the weights of metrics that are models."""

import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from medtasks.cli.options import named_values, split_names
from medtasks.cli.output import say, say_columns, show, write_json
from medtasks.errors import MedTasksError, WeightsMissing, join_names, unknown_name
from medtasks.home import as_json
from medtasks.judges.judge_client import is_configured
from medtasks.metrics.meteor import prepare_wordnet
from medtasks.metrics.metric import Scale
from medtasks.metrics.missing_weights import weights_trouble
from medtasks.metrics.model_settings import (
    TOKENIZER,
    WEIGHTS,
    WORDNET,
    ModelSettings,
    fetch,
    weights_home,
)
from medtasks.metrics.report_metrics import (
    REPORT_METRICS,
    ReportScores,
    keys_of,
    metric_info,
    report_metric,
)
from medtasks.metrics.report_texts import ReportPairs, pair_texts, read_report_texts
from medtasks.report.tables import Table, number_table
from medtasks.report.wording import names_by, number
from medtasks.runs.sample_counts import DEFAULT_LIMIT, GREEN_FAILED, FailureLimit, SampleCounts
from medtasks.version import __version__, installed_version

weights_app = typer.Typer(
    help="List and fetch the weights of metrics that are models.", no_args_is_help=True
)
_ALL = "all"
_BETTER = {True: "higher", False: "lower"}
_PACKAGES = ("numpy", "torch", "transformers", "nltk", "sacrebleu", "scikit-learn")


def metrics(
    refs: Annotated[
        Path | None, Option(help="References: .jsonl, .json, .csv, or .txt with one per line.")
    ] = None,
    hyps: Annotated[
        Path | None, Option(help="The model's reports, in any of these forms.")
    ] = None,
    metric: Annotated[
        list[str] | None, Option(help="Metric or one of its scores; 'all'. Default: list them.")
    ] = None,
    column: Annotated[
        str | None, Option(help="Column or field with the text, if not text or report.")
    ] = None,
    weights: Annotated[
        list[str] | None, Option(metavar="NAME=PATH", help="Location of weights; repeatable.")
    ] = None,
    device: Annotated[
        str | None, Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, Option(help="bfloat16 is faster and less exact.")
    ] = None,
    batch_size: Annotated[int | None, Option(min=1, help="Texts per batch of a model.")] = None,
    cache: Annotated[
        bool, Option(help="Keep models' outputs for each text for the next run.")
    ] = True,
    json_file: Annotated[
        Path | None, Option("--json", help="Also write every value as JSON.")
    ] = None,
) -> None:
    """Score reports against references. Without --metric, list the metrics and whether their weights are there."""
    if not metric:
        _list_metrics()
        return
    paths = named_values("--weights", weights or (), "NAME=PATH, such as chexbert=chexbert.pth")
    named = {name: Path(path).expanduser() for name, path in paths}
    settings = ModelSettings.from_environment()
    settings = replace(
        settings,
        device=device or settings.device,
        dtype=dtype or settings.dtype,
        named_weights=named,
        batch_size=batch_size,
        progress=sys.stderr.isatty(),
    )
    chosen = _choose_scores(metric)
    if refs is None or hyps is None:
        raise typer.BadParameter("give the reports with --refs FILE and --hyps FILE")
    pairs = pair_texts(read_report_texts(refs, column), read_report_texts(hyps, column))
    # Even without a permanent cache there is a temporary one, because RadCliQ runs the models of other metrics again.
    with nullcontext() if cache else tempfile.TemporaryDirectory(prefix="medtasks-") as folder:
        if folder is not None:
            settings = replace(settings, cache=Path(folder))
        _score(pairs, chosen, settings, json_file)


def _choose_scores(words: Sequence[str]) -> dict[str, dict[str, None]]:
    """Return the scores that ``--metric`` names.

    Returns:
        Keys of scores by name of the metric that computes them, in order, as a dict whose values are all None.

    Raises:
        BadParameter: There is no name.
        UnknownName: There is no such metric or score.
    """
    names = split_names(",".join(words))
    if not names:
        raise typer.BadParameter("--metric names no metric; without it they are listed")
    if _ALL in names:
        names = list(REPORT_METRICS)
    chosen: dict[str, dict[str, None]] = {}
    for name in names:
        chosen.setdefault(metric_info(name).name, {}).update(dict.fromkeys(keys_of(name)))
    return chosen


def _list_metrics() -> None:
    """Print all metrics, whether their weights or judge are there, and how to fetch what is missing."""
    rows = [("metric", "better", "ready", "description")]
    lacking: dict[str, str] = {}
    for info in REPORT_METRICS.values():
        ready = "yes"
        if info.asks_judge and not is_configured():
            ready = "no"
        for name in info.weights:
            if trouble := weights_trouble(name):
                lacking[name] = str(trouble)
                ready = "no"
        description = info.description
        if info.keys != (info.name,):
            description += f": {join_names(info.keys)}"
        rows.append((info.name, _BETTER[info.higher_is_better], ready, description))
    say_columns(rows)
    if no_tokenizer := lacking.pop(TOKENIZER, ""):
        say(f"{no_tokenizer}.")
    if lacking:
        say(f"Fetch what is missing with: medtasks weights fetch {' '.join(lacking)}")


def _score(
    pairs: ReportPairs,
    chosen: Mapping[str, Collection[str]],
    settings: ModelSettings,
    json_file: Path | None,
) -> None:
    """Compute, print and write the chosen scores. A metric that fails does not keep the others from it.

    Args:
        pairs: Replies and references.
        chosen: Keys of the scores by metric.
        settings: Settings of metrics that are models.
        json_file: File for all values; None writes none.

    Raises:
        MedTasksError: A metric could not be computed, or its judge failed on too many samples.
    """
    scores: dict[str, ReportScores] = {}
    failures: dict[str, str] = {}
    for name in chosen:
        try:
            compute = report_metric(name, settings)
            scores[name] = compute(references=pairs.references, hypotheses=pairs.hypotheses)
        except (MedTasksError, OSError) as error:
            failures[name] = str(error)
    if scores:
        show(_score_table(pairs, chosen, scores))
    rough = []
    for name, result in scores.items():
        if "bfloat16" in result.settings.values():
            rough.append(name)
        if "judge" in result.settings:
            say(f"Judge of {name}: {result.settings['judge']}.")
        unread = int(result.totals.get(GREEN_FAILED, 0))
        counts = SampleCounts(len(pairs.references) - unread, 0, unread)
        if not FailureLimit.parse(DEFAULT_LIMIT).allows(counts):
            failures[name] = (
                f"{counts}, which is more than {DEFAULT_LIMIT}; the values are over the others"
            )
    if rough:
        say(f"Computed in bfloat16, which moves scores a little: {', '.join(rough)}.")
    write_json(json_file, _as_dict(pairs, scores, failures))
    if failures:
        causes = names_by(failures.items()).items()
        raise MedTasksError("\n".join(f"{names}: {cause}" for cause, names in causes))


def _score_table(
    pairs: ReportPairs,
    chosen: Mapping[str, Collection[str]],
    scores: Mapping[str, ReportScores],
) -> Table:
    """Return the chosen scores with their direction, and the numbers of pairs and of empty texts in the caption."""
    empty_replies = sum(not text.strip() for text in pairs.hypotheses)
    empty_references = sum(not text.strip() for text in pairs.references)
    rows = []
    for name, result in scores.items():
        for key in chosen[name]:
            info = metric_info(key)
            value = number(result.totals[key], info.scale is Scale.SHARE)
            rows.append((key, value, _BETTER[info.higher_is_better]))
    return number_table(
        f"pairs: {len(pairs.references)}, empty replies: {empty_replies}, empty references: {empty_references}",
        ("score", "value", "better"),
        rows,
    )


def _as_dict(
    pairs: ReportPairs,
    scores: Mapping[str, ReportScores],
    failures: Mapping[str, str],
) -> dict[str, Any]:
    """Return all values with their settings, ids and versions as JSON, and why metrics failed."""
    metric_records = {}
    for name, result in scores.items():
        metric_records[name] = {
            "higher_is_better": metric_info(name).higher_is_better,
            "totals": as_json(result.totals),
            "samples": as_json(result.samples),
            "settings": dict(result.settings),
        }
    versions = {name: installed_version(name) for name in _PACKAGES}
    return {
        "medtasks": __version__,
        "versions": {name: version for name, version in versions.items() if version},
        "pairs": len(pairs.references),
        "ids": pairs.ids,
        "metrics": metric_records,
        "failed": dict(failures),
    }


def _list_weights() -> None:
    """Print all weights, whether they are on this machine, and under which licence."""
    rows = [
        (info.name, f"{info.size:,.0f}", info.description, info.licence)
        for info in WEIGHTS.values()
    ]
    rows.append((WORDNET, "11", "synonyms of METEOR", "WordNet licence"))
    rows.append(
        (TOKENIZER, "104", "words of CIDEr: the extra 'cider', and Java", "GPL 2 or later")
    )
    here = [(name, "no" if weights_trouble(name) else "yes", *facts) for name, *facts in rows]
    say_columns([("weights", "here", "MB", "description", "licence"), *here])
    moving = [info.name for info in WEIGHTS.values() if info.hub]
    say(
        f"Weights folder: {weights_home()}",
        f"Fetched in the newest revision of their repository, with which values may move: {', '.join(moving)}.",
    )


@weights_app.command("fetch")
def fetch_weights(
    names: Annotated[
        list[str] | None, Argument(help="Names; 'all' for all of them; none to list them.")
    ] = None,
    source: Annotated[
        Path | None, Option(help="For wordnet: a folder or archive instead of the download.")
    ] = None,
) -> None:
    """List weights and their licences, or download some. Those that are on this machine are not downloaded again."""
    if not names:
        _list_weights()
        return
    chosen = _choose_weights(names)
    if source is not None and chosen != [WORDNET]:
        raise typer.BadParameter(
            "--source is for wordnet alone; other weights are put into their folder by hand"
        )
    failures = []
    for name in chosen:
        try:
            path = prepare_wordnet(source) if name == WORDNET else fetch(name)
        except MedTasksError as error:
            failures.append(str(error))
        else:
            say(f"{name}: {path}")
    if failures:
        raise WeightsMissing("\n".join(failures))


def _choose_weights(names: Sequence[str]) -> list[str]:
    """Return the weights with these names, each once, or all weights if one of the names is ``all``.

    Raises:
        UnknownName: There are no such weights.
    """
    existing = [*WEIGHTS, WORDNET]
    for name in names:
        if name not in (*existing, _ALL):
            raise unknown_name("weights", name, (*existing, _ALL))
    return existing if _ALL in names else list(dict.fromkeys(names))
