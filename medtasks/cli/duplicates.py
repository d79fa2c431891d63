"""``medtasks data duplicates``: is a picture of the benchmark in it twice, or among the training images?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from medtasks import __version__
from medtasks.audit.report.wording import counted, number
from medtasks.cli.output import JsonFile, out, say, show, write_json, write_text
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError


def duplicates(
    name: Annotated[str, typer.Argument(help="A prepared dataset, see 'medtasks data list'.")],
    against: Annotated[
        str | None,
        typer.Option(help="A folder of images, such as those a model was trained on; or another prepared dataset."),
    ] = None,
    distance: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="How many of the 256 bits of the hashes of two pictures that look the same differ.",
        ),
    ] = 40,
    turned: Annotated[
        bool, typer.Option("--turned", help="Also find mirrored and rotated copies; eight times as many comparisons.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="The page to look at them; by default NAME_duplicates.html in this folder.")
    ] = None,
    json_file: JsonFile = None,
    list_file: Annotated[
        Path | None,
        typer.Option("--list", help="Also write the doc_ids to leave out for no duplicate to remain, one per line."),
    ] = None,
    fail_on_found: Annotated[
        bool, typer.Option("--fail-on-found", help="End with exit code 1 if anything was found.")
    ] = False,
) -> None:
    """Find pictures of a benchmark that are in it twice, in its solved examples, or among other images.

    Copies are found that were re-encoded, resized, brightened, windowed, or given a border or a line of text. Several
    questions on one picture are no finding. Other files than images (archives, tables, volumes) are not looked into.
    """
    from medtasks.audit.report.duplicates_page import Names, duplicates_as_dict, write_duplicates_page
    from medtasks.data.duplicates.benchmark_images import dataset_images, other_images
    from medtasks.data.duplicates.finding import find_duplicates

    if against == name:
        raise MedTasksError(f"'{name}' is compared with itself in any case; leave out --against")
    shown = dataset_images(name)
    other = other_images(against, without=shown.folders) if against else None
    found = find_duplicates(shown, other, distance, turned=turned)
    names = Names(name, found)
    contents = duplicates_as_dict(name, found, names, distance, turned=turned)
    page = html or Path(f"{name}_duplicates.html")
    write_duplicates_page(contents, found, names, page, sample=contents["data"]["sample"])
    write_json(json_file, {"medtasks": __version__, **contents})
    write_text(list_file, "".join(f"{doc_id}\n" for doc_id in contents["left_out"]))
    _print_tables(contents)
    _print_notes(contents, hidden=names.hidden)
    say(f"Page: {page}")
    number = len(contents["within"]) + len(found.outside)
    if number and fail_on_found:
        raise MedTasksError(f"{number} duplicate{'' if number == 1 else 's'} found in '{name}'; look at {page}")


def _print_tables(contents: Mapping[str, Any]) -> None:
    from medtasks.audit.report.duplicates_page import duplicate_tables

    name, against = contents["dataset"], contents["against"]
    say(f"{name}: {counted(contents['questions'], 'question')} on {counted(contents['pictures'], 'distinct picture')}")
    if against:
        say(
            f"Compared with {counted(against['files'], 'file')} of {against['name']}, "
            f"{counted(against['pictures'], 'distinct picture')}"
        )
        if not against["findings"]:
            say(f"No picture of {name} was found there.")
    if not contents["within"]:
        say(f"Within {name} no picture is there twice.")
    for table in duplicate_tables(contents):
        show(table)


def _print_notes(contents: Mapping[str, Any], *, hidden: bool) -> None:
    from medtasks.audit.report.duplicates_page import not_compared

    settings, groups, left_out = contents["settings"], contents["groups"], contents["left_out"]
    for sentence in not_compared(contents):
        say(sentence)
    if groups:
        largest = counted(len(groups[0]), "distinct picture")
        out.print(f"Within the benchmark they make {counted(len(groups), 'group')}, the largest of {largest}.")
    out.print(
        f"Looks the same: at most {settings['distance']} of {settings['bits']} bits of the hashes differ and details "
        f"correlate by {settings['likeness']} or more ({settings['likeness_of_small_pictures']} below 56 pixels)"
        f"{'' if settings['turned'] else '; mirrored and rotated copies are found with --turned'}."
    )
    if left_out:
        out.print(
            f"For none of this to remain, leave out {counted(len(left_out), 'question')} "
            f"({number(len(left_out) / contents['questions'])}), pairs as a whole; --list writes their ids."
        )
    if hidden:
        say(
            f"Credentialed data: pictures and names are withheld, ids are hashed; {LOG_TEXT_VARIABLE}="
            f"{contents['dataset']} shows them."
        )
    if contents["data"]["sample"]:
        out.print("SAMPLE DATA: drawn pictures.")
