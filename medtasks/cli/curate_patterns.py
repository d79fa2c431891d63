"""``medtasks curate patterns``: what pairs have in common that models confuse."""

import math
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.tables import NOT_DEFINED
from medtasks.cli.curate import MaxRequests
from medtasks.cli.output import JsonFile, print_state_of_data, say, say_columns, write_json
from medtasks.curate.drafts import DraftOutcome
from medtasks.curate.llm import open_llm
from medtasks.curate.pairs.failure_modes import FILE, pairs_of_study, published_pairs, write_failure_modes
from medtasks.curate.pairs.patterns import PairState, Patterns, find_patterns, read_models, write_gap_figure
from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_lookup import provenance
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
        path = file or Path(FILE if published else Path(name) / FILE)
        counts = write_failure_modes(known, open_llm(known.study, max_requests), path)
        say(f"{path}: {counts[DraftOutcome.DRAFTED]} of {counts.total()} requests answered")
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


def _show(found: Patterns, top: int) -> None:
    models, counts = found.models, found.counts
    for letter, one in models.items():
        say(f"{letter}: {one.model}, {one.task} ({one.rule}), {one.run}")
    say("")
    say_columns([("pairs", *models), *((state, *(str(counts[one][state]) for one in models)) for state in PairState)])
    if first := list(found.pairs)[:top]:
        say(f"\nMost confusing {len(first)} of {len(found.pairs)} pairs:")
        rows: list[tuple[str, ...]] = [("pair", "gap", *models)]
        for pair_id in first:
            shown = hidden_id("pair", pair_id) if is_private(found.name) else pair_id
            states = (model.states[pair_id] for model in models.values())
            rows.append((shown, f"{found.pairs[pair_id].gap:.3f}", *states))
        say_columns(rows)
    say("\nRank correlation with similarity, 95 % interval; above 0: the more, the higher it is")
    rows = [("model", "of", "with", "pairs", "clusters", "correlation", "interval")]
    for each in found.associations:
        ends = NOT_DEFINED if math.isnan(each.low) else f"{each.low:+.2f} to {each.high:+.2f}"
        value = NOT_DEFINED if math.isnan(each.correlation) else f"{each.correlation:+.2f}"
        rows.append((each.model, each.outcome, each.by, str(each.pairs), str(each.clusters), value, ends))
    say_columns(rows)
    print_state_of_data({found.name: provenance(found.name)})
