"""``medtasks curate pairs``: images that look alike to a medical encoder and not to another one."""

from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli.curate import AccessLevel, StudyName
from medtasks.cli.output import say, say_columns
from medtasks.data.catalogue import Access

_ENCODER = "hub id or folder (open_clip, transformers), hf_vlm:ID of a vision-language model, or module:factory"


def pairs(
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help='Lines of {"id", "image", "caption"}, also "group" and "licence"; or the folder of ROCO, ROCOv2 or '
            "PMC-OA.",
        ),
    ],
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
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Compare so many pairs drawn at random, as the paper did.", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
    per_image: Annotated[
        int | None,
        typer.Option(min=1, help="Most pairs an image may be in; the largest gaps win.", show_default="any number"),
    ] = None,
    keep_near_duplicates: Annotated[
        bool, typer.Option("--keep-near-duplicates", help="Do not look for pairs that show the same image twice.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch of an encoder.")] = 16,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default="a GPU where there is one")
    ] = None,
) -> None:
    """Find pairs of images that confuse: alike to a medical encoder, and not alike to a vision-only one.

    Two images of one group (patient, study, article) are never a pair. Embeddings are kept: a run that was interrupted
    goes on where it stopped.
    """
    from medtasks.curate.pairs.encoders import GENERAL, MEDICAL
    from medtasks.curate.pairs.pair_search import MOST_PAIRS, Limits
    from medtasks.curate.pairs.pair_study import PairOptions, make_pair_study
    from medtasks.curate.study import checked_name, read_images

    options = PairOptions(
        encoder or MEDICAL,
        general_encoder or GENERAL,
        Limits(sim_med, sim_gen),
        sample,
        seed,
        per_image,
        keep_near_duplicates,
    )
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
    if recall := made.study.made_with.get("recall"):
        say(f"Pairs were found by FAISS: {recall}.")
    say(f"Next: medtasks curate draft {out}")
    requests = counts["pairs chosen"] + len(read_images(out))
    say(f"That is about {requests:,} requests to an LLM, one per pair and image; --per-image 1 makes fewer pairs.")
