"""``medtasks curate pairs`` and ``patterns``: images that confuse a medical encoder, and what they have in common."""

import math
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.tables import NOT_DEFINED
from medtasks.cli.curate import AccessLevel, MaxRequests, StudyName
from medtasks.cli.output import JsonFile, print_state_of_data, say, say_columns, write_json
from medtasks.curate.drafts import DraftOutcome
from medtasks.curate.llm import open_llm
from medtasks.curate.pairs.failure_modes import FILE, pairs_of_study, published_pairs, write_failure_modes
from medtasks.curate.pairs.patterns import PairState, Patterns, find_patterns, read_models
from medtasks.data.catalogue import MEDICONFUSION, Access
from medtasks.data.dataset_lookup import provenance
from medtasks.data.privacy import hidden_id, is_private
from medtasks.errors import MedTasksError

_ENCODER = "hub id or folder (open_clip, transformers), hf_vlm:ID of a vision-language model, or module:factory"


Images = Annotated[
    Path,
    typer.Argument(metavar="IMAGES.jsonl", help='Lines of {"id", "image", "caption"}, also "group" and "licence".'),
]
SampledPairs = Annotated[
    int | None, typer.Option(min=1, help="Compare so many pairs drawn at random, as the paper did.", show_default="all")
]
PairsPerImage = Annotated[
    int | None,
    typer.Option(min=1, help="Most pairs an image may be in; the largest gaps win.", show_default="any number"),
]


def pairs(
    images: Images,
    out: Annotated[Path, typer.Option(metavar="STUDY", help="Folder of the study, which is made.")],
    name: StudyName = None,
    access: AccessLevel = Access.CREDENTIALED,
    encoder: Annotated[
        str | None, typer.Option(help=f"Medical encoder: {_ENCODER}.", show_default="BiomedCLIP")
    ] = None,
    general_encoder: Annotated[
        str | None, typer.Option(help="Vision-only encoder, named likewise.", show_default="facebook/dinov2-base")
    ] = None,
    sim_med: Annotated[float, typer.Option(min=-1, max=1, help="Least similarity to the medical encoder.")] = 0.9,
    sim_gen: Annotated[float, typer.Option(min=-1, max=1, help="Largest similarity to the vision-only one.")] = 0.75,
    sample: SampledPairs = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for --sample.")] = 0,
    per_image: PairsPerImage = None,
    keep_near_duplicates: Annotated[
        bool, typer.Option("--keep-near-duplicates", help="Do not look for pairs that show the same image twice.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch of an encoder.")] = 16,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default="a GPU where there is one")
    ] = None,
) -> None:
    """Find confusing pairs of images: alike to a medical encoder, and not alike to a vision-only one.

    Two images of one group (patient, study, article) are never a pair. Embeddings are kept: a run that was interrupted
    goes on where it stopped.
    """
    from medtasks.curate.pairs.encoders import GENERAL, MEDICAL
    from medtasks.curate.pairs.pair_search import MOST_PAIRS, Limits
    from medtasks.curate.pairs.pair_study import PairOptions, make_pair_study
    from medtasks.curate.study import checked_name, read_images

    encoders, limits = (encoder or MEDICAL, general_encoder or GENERAL), Limits(sim_med, sim_gen)
    options = PairOptions(*encoders, limits, sample, seed, per_image, keep_near_duplicates)
    chosen_name = checked_name(name or out.absolute().name)
    made = make_pair_study(images, out, chosen_name, access, options, batch_size, device)
    if made.listed.unused:
        say(f"Keys of {images.name} that are not used: {', '.join(made.listed.unused)}")
    if made.pairs is None:
        say(f"{out} is made already, and with the same settings; nothing was changed.")
    elif made.pairs.more:
        say(f"There are more than {MOST_PAIRS:,} confusing pairs; those with the largest gaps were looked at further.")
    counts = made.study.made_with["counts"]
    say_columns([(str(count), what) for what, count in counts.items()])
    say(f"Next: medtasks curate draft {out}")
    requests = counts["pairs chosen"] + len(read_images(out))
    say(f"That is about {requests:,} requests to an LLM, one per pair and image; --per-image 1 makes fewer pairs.")


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
    top: Annotated[int, typer.Option(min=0, help="With --results: how many pairs to show; --json holds all.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Name failure modes of models by an LLM that reads captions and questions; or count them, with --results.

    Without --results, the LLM that MEDTASKS_JUDGE_* name sees 100 pairs at a time and names failure modes. With it,
    tables show which pairs confuse which models, and whether similarity predicts it.
    """
    published = name == MEDICONFUSION.name and not Path(name, "study.json").exists()
    benchmark = published_pairs(source) if published else pairs_of_study(Path(name))
    if not results:
        if json_file:
            raise MedTasksError("--json shows results of models; name runs with --results")
        path = file or Path(FILE if published else Path(name) / FILE)
        counts = write_failure_modes(benchmark, open_llm(benchmark.study, max_requests), path)
        say(f"{path}: {counts[DraftOutcome.DRAFTED]} of {counts.total()} requests answered")
        return
    pairs = {pair_id: item.pair for pair_id, item in benchmark.pairs.items()}
    dataset = published_as or benchmark.study.name
    models, causes = read_models(dataset, pairs, results)
    summary = find_patterns(dataset, pairs, models)
    write_json(json_file, summary.as_dict())
    _show(summary, top)
    for task, cause in causes.items():
        say(f"Left out: {task}: {cause}")


def _show(summary: Patterns, top: int) -> None:
    models, counts = summary.models, summary.counts
    for letter, model in models.items():
        say(f"{letter}: {model.model}, {model.task} ({model.rule}), {model.run}")
    say("")
    say_columns([("pairs", *models), *((state, *(str(counts[name][state]) for name in models)) for state in PairState)])
    if first := list(summary.pairs)[:top]:
        say(f"\nMost confusing {len(first)} of {len(summary.pairs)} pairs:")
        rows: list[tuple[str, ...]] = [("pair", "gap", *models)]
        for pair_id in first:
            name = hidden_id("pair", pair_id) if is_private(summary.name) else pair_id
            states = (model.states[pair_id] for model in models.values())
            rows.append((name, f"{summary.pairs[pair_id].gap:.3f}", *states))
        say_columns(rows)
    say("\nRank correlation with similarity, 95 % interval; above 0: errors rise with it")
    rows = [("model", "of", "with", "pairs", "clusters", "correlation", "interval")]
    for each in summary.associations:
        ends = NOT_DEFINED if math.isnan(each.low) else f"{each.low:+.2f} to {each.high:+.2f}"
        value = NOT_DEFINED if math.isnan(each.correlation) else f"{each.correlation:+.2f}"
        rows.append((each.model, each.outcome, each.by, str(each.pairs), str(each.clusters), value, ends))
    say_columns(rows)
    print_state_of_data({summary.name: provenance(summary.name)})
