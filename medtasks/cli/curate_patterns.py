"""``medtasks curate patterns``: what pairs have in common that models confuse."""

import math
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.tables import NOT_DEFINED
from medtasks.cli.curate import MaxRequests
from medtasks.cli.output import JsonFile, print_state_of_data, say, say_columns, write_json
from medtasks.curate.drafts import Outcome
from medtasks.curate.failure_modes import FILE, write_failure_modes
from medtasks.curate.known_pairs import KnownPairs, pairs_of_study, published_pairs
from medtasks.curate.llm import open_llm
from medtasks.curate.pair_results import PairState, read_models
from medtasks.curate.pattern_figure import write_gap_figure
from medtasks.curate.patterns import Association, Patterns, find_patterns
from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.prepared import provenance
from medtasks.data.privacy import hidden_id, is_private
from medtasks.errors import MedTasksError

Results = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="Run, or samples file, of a task of these pairs; once for each model."),
]


def patterns(
    name: Annotated[
        str, typer.Argument(metavar="STUDY|mediconfusion", help="Folder of a study of pairs, or mediconfusion.")
    ],
    results: Results = None,
    published_as: Annotated[
        str | None, typer.Option("--as", help="With --results: what the study was published as, if not as its name.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of MediConfusion's dataset.json, if it was moved.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help=f"Where failure modes go. Default: STUDY/{FILE}.")
    ] = None,
    max_requests: MaxRequests = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --results: error by gap, as .svg or .png.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="With --results: how many pairs to show; --json holds all.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Say what confuses models: in words, by an LLM that reads captions and questions; or by --results, in numbers.

    Without --results, the LLM that MEDTASKS_JUDGE_* name sees 100 pairs at a time and names failure modes. With them, a
    table tells which pairs confuse which models, and whether similarity predicts it.
    """
    published = name == MEDICONFUSION.name and not Path(name, "study.json").exists()
    known = published_pairs(source) if published else pairs_of_study(Path(name))
    if not results:
        if figure or json_file:
            raise MedTasksError("--figure and --json show results of models; name runs with --results")
        _write_modes(known, max_requests, file or Path(FILE if published else Path(name) / FILE))
        return
    pairs = {pair_id: one.pair for pair_id, one in known.pairs.items()}
    dataset = published_as or known.study.name
    models, causes = read_models(dataset, pairs, results)
    found = find_patterns(dataset, pairs, models)
    write_json(json_file, found.as_dict())
    if figure is not None:
        write_gap_figure(figure, found)
    _show(found, top)
    for task, cause in causes.items():
        say(f"Left out: {task}: {cause}")


def _write_modes(known: KnownPairs, max_requests: int | None, path: Path) -> None:
    counts = write_failure_modes(known, open_llm(known.study, max_requests), path)
    say(f"{path}: {counts[Outcome.DRAFTED]} of {counts.total()} requests answered")


def _show(found: Patterns, top: int) -> None:
    models = found.models
    for letter, one in models.items():
        say(f"{letter}: {one.model}, {one.task} ({one.rule}), {one.run}")
    say("")
    counts = found.counts
    say_columns([("pairs", *models), *((state, *(str(counts[one][state]) for one in models)) for state in PairState)])
    if first := list(found.pairs)[:top]:
        say(f"\nMost confusing {len(first)} of {len(found.pairs)} pairs:")
        hide = is_private(found.name)
        rows = [
            (_shown(one, hide), f"{found.pairs[one].gap:.3f}", *(model.states[one] for model in models.values()))
            for one in first
        ]
        say_columns([("pair", "gap", *models), *rows])
    say("\nRank correlation with similarity, 95 % interval; above 0: the more, the higher it is")
    head = ("model", "of", "with", "pairs", "clusters", "correlation", "interval")
    say_columns([head, *map(_row, found.associations)])
    print_state_of_data({found.name: provenance(found.name)})


def _shown(pair_id: str, hide: bool) -> str:
    return hidden_id("pair", pair_id) if hide else pair_id


def _row(one: Association) -> tuple[str, ...]:
    ends = NOT_DEFINED if math.isnan(one.low) else f"{one.low:+.2f} to {one.high:+.2f}"
    value = NOT_DEFINED if math.isnan(one.correlation) else f"{one.correlation:+.2f}"
    return one.model, one.outcome, one.by, str(one.pairs), str(one.clusters), value, ends
