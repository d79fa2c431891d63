"""``medtasks curate pairs`` and ``patterns``: images that confuse a medical encoder, and their common features."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from medtasks.audit.tables import NOT_DEFINED
from medtasks.cli.curate import AccessLevel, MaxRequests, StudyName
from medtasks.cli.output import JsonFile, print_state_of_data, say, say_columns, write_json
from medtasks.curate.drafts import DraftOutcome, open_llm
from medtasks.curate.pairs.patterns import (
    FILE,
    PairState,
    find_patterns,
    pairs_of_study,
    published_pairs,
    read_models,
    write_failure_modes,
)
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
    int | None, typer.Option(min=1, help="Number of random pairs to compare, as in the paper.", show_default="all")
]
PairsPerImage = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum number of pairs per image; those with the largest gaps are kept.", show_default="unlimited"
    ),
]


def pairs(
    images: Images,
    out: Annotated[Path, typer.Option(metavar="STUDY", help="Folder of the new study.")],
    name: StudyName = None,
    access: AccessLevel = Access.CREDENTIALED,
    encoder: Annotated[
        str | None, typer.Option(help=f"Medical encoder: {_ENCODER}.", show_default="BiomedCLIP")
    ] = None,
    general_encoder: Annotated[
        str | None, typer.Option(help="Vision-only encoder, in the same form.", show_default="facebook/dinov2-base")
    ] = None,
    sim_med: Annotated[
        float, typer.Option(min=-1, max=1, help="Minimum similarity according to the medical encoder.")
    ] = 0.9,
    sim_gen: Annotated[
        float, typer.Option(min=-1, max=1, help="Maximum similarity according to the vision-only encoder.")
    ] = 0.75,
    sample: SampledPairs = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for sampling.")] = 0,
    per_image: PairsPerImage = None,
    keep_near_duplicates: Annotated[
        bool, typer.Option("--keep-near-duplicates", help="Keep pairs that show the same image twice.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch of an encoder.")] = 16,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default="a GPU if there is one")
    ] = None,
) -> None:
    """Find confusing pairs of images: similar to a medical encoder, but not to a vision-only one.

    Two images of one group (patient, study, article) are never a pair. Embeddings are kept, so that an interrupted run
    continues where it stopped.
    """
    from medtasks.curate.pairs.encoders import GENERAL, MEDICAL
    from medtasks.curate.pairs.pair_search import MOST_PAIRS, Limits, PairOptions, make_pair_study
    from medtasks.curate.study import checked_name, read_images

    encoders, limits = (encoder or MEDICAL, general_encoder or GENERAL), Limits(sim_med, sim_gen)
    options = PairOptions(*encoders, limits, sample, seed, per_image, keep_near_duplicates)
    chosen_name = checked_name(name or out.absolute().name)
    made = make_pair_study(images, out, chosen_name, access, options, batch_size, device)
    if made.listed.unused:
        say(f"Keys of {images.name} that are not used: {', '.join(made.listed.unused)}")
    if made.pairs is None:
        say(f"{out} exists already with the same settings; nothing was changed.")
    elif made.pairs.more:
        say(f"There are more than {MOST_PAIRS:,} confusing pairs; only those with the largest gaps were considered.")
    counts = made.study.made_with["counts"]
    say_columns([(str(count), description) for description, count in counts.items()])
    say(f"Next: medtasks curate draft {out}")
    requests = counts["pairs chosen"] + len(read_images(out))
    say(f"That is about {requests:,} requests to an LLM, one per pair and image; --per-image 1 makes fewer pairs.")


Results = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="Run, or samples file, of a task with these pairs; repeat for each model."),
]


def patterns(
    name: Annotated[
        str, typer.Argument(metavar="STUDY|mediconfusion", help="Folder of a study of pairs, or mediconfusion.")
    ],
    results: Results = None,
    published_as: Annotated[
        str | None,
        typer.Option("--as", help="With --results: name under which the study was published, if not its own."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder with MediConfusion's dataset.json, if it was moved.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help=f"File for the failure modes. Default: STUDY/{FILE}.")
    ] = None,
    max_requests: MaxRequests = None,
    top: Annotated[int, typer.Option(min=0, help="With --results: number of pairs to show; --json holds all.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Describe what confuses models: in words by an LLM that reads captions and questions, or by --results in numbers.

    Without --results, the LLM of MEDTASKS_JUDGE_* sees 100 pairs at a time and names failure modes. With --results,
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
    write_json(json_file, summary)
    _print_patterns(summary, top)
    for task, cause in causes.items():
        say(f"Left out: {task}: {cause}")


def _print_patterns(patterns: Mapping[str, Any], top: int) -> None:
    name, models = patterns["name"], patterns["models"]
    for letter, model in models.items():
        say(f"{letter}: {model['model']}, {model['task']} ({model['rule']}), {model['run']}")
    say("")
    rows: list[tuple[str, ...]] = [("pairs", *models)]
    rows += [(state, *(str(model["pairs"][state]) for model in models.values())) for state in PairState]
    say_columns(rows)
    if first := patterns["pairs"][:top]:
        say(f"\nMost confusing {len(first)} of {len(patterns['pairs'])} pairs:")
        rows = [("pair", "gap", *models)]
        for pair in first:
            pair_name = hidden_id("pair", pair["pair_id"]) if is_private(name) else pair["pair_id"]
            rows.append((pair_name, f"{pair['gap']:.3f}", *pair["states"].values()))
        say_columns(rows)
    say("\nRank correlation with similarity, 95 % interval; positive: higher with more similarity")
    rows = [("model", "of", "with", "pairs", "clusters", "correlation", "interval")]
    for each in patterns["associations"]:
        ends = NOT_DEFINED if each["low"] is None else f"{each['low']:+.2f} to {each['high']:+.2f}"
        value = NOT_DEFINED if each["correlation"] is None else f"{each['correlation']:+.2f}"
        about = (each["model"], each["outcome"], each["by"], str(each["pairs"]), str(each["clusters"]))
        rows.append((*about, value, ends))
    say_columns(rows)
    print_state_of_data({name: provenance(name)})
