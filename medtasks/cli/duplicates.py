"""``medtasks data duplicates``: images that a benchmark holds twice, or that are among the training images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from medtasks import __version__
from medtasks.audit.report.wording import counted, number
from medtasks.cli.options import JsonFile
from medtasks.cli.output import out, say, show, write_json, write_text
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError


def duplicates(
    name: Annotated[str, Argument(help="A prepared dataset, see 'medtasks data list'.")],
    against: Annotated[
        str | None, Option(help="A folder of images, such as a model's training images, or another prepared dataset.")
    ] = None,
    distance: Annotated[
        int, Option(min=0, max=64, help="Maximum number of differing bits, of 256, between the hashes of duplicates.")
    ] = 40,
    turned: Annotated[
        bool, Option("--turned", help="Also find mirrored and rotated copies; eight times the work.")
    ] = False,
    html: Annotated[Path | None, Option(help="Page to write. Default: NAME_duplicates.html here.")] = None,
    json_file: JsonFile = None,
    list_file: Annotated[
        Path | None,
        Option("--list", help="Also write the doc_ids to leave out so that no duplicate remains, one per line."),
    ] = None,
    fail_on_found: Annotated[bool, Option("--fail-on-found", help="Exit with 1 if there are duplicates.")] = False,
) -> None:
    """Find images of a benchmark that are in it twice, in its few-shot examples, or among other images.

    Copies are found even if re-encoded, resized, brightened, windowed, or given a border or a line of text. Several
    questions on one image do not count. Only image files are searched, not archives, tables or volumes.
    """
    from medtasks.audit.report.duplicates_page import Names, duplicates_as_dict, write_duplicates_page
    from medtasks.data.duplicates.image_copies import dataset_images, find_duplicates, other_images

    if against == name:
        raise MedTasksError(f"'{name}' is compared with itself in any case; leave out --against")
    images = dataset_images(name)
    other = other_images(against, without=images.folders) if against else None
    copies = find_duplicates(images, other, distance, turned=turned)
    names = Names(name, copies)
    contents = duplicates_as_dict(name, copies, names, distance, turned=turned)
    page = html or Path(f"{name}_duplicates.html")
    write_duplicates_page(contents, copies, names, page, sample=contents["data"]["sample"])
    write_json(json_file, {"medtasks": __version__, **contents})
    write_text(list_file, "".join(f"{doc_id}\n" for doc_id in contents["left_out"]))
    _print(contents, hidden=names.hidden)
    say(f"Page: {page}")
    number = len(contents["within"]) + len(copies.outside)
    if number and fail_on_found:
        raise MedTasksError(f"{number} duplicate{'' if number == 1 else 's'} found in '{name}'; look at {page}")


def _print(contents: Mapping[str, Any], *, hidden: bool) -> None:
    from medtasks.audit.report.duplicates_page import duplicate_tables, not_compared

    name, against, settings = contents["dataset"], contents["against"], contents["settings"]
    say(f"{name}: {counted(contents['questions'], 'question')} on {counted(contents['pictures'], 'distinct image')}")
    if against:
        say(
            f"Compared with {counted(against['files'], 'file')} of {against['name']}, "
            f"{counted(against['pictures'], 'distinct image')}"
        )
        if not against["findings"]:
            say(f"No image of {name} was found there.")
    if not contents["within"]:
        say(f"{name} holds no image twice.")
    for table in duplicate_tables(contents):
        show(table)
    for sentence in not_compared(contents):
        say(sentence)
    if groups := contents["groups"]:
        largest = counted(len(groups[0]), "distinct image")
        out.print(f"Duplicates within the benchmark form {counted(len(groups), 'group')}, the largest of {largest}.")
    out.print(
        f"Duplicates: at most {settings['distance']} of {settings['bits']} bits of the hashes differ and details "
        f"correlate by {settings['likeness']} or more ({settings['likeness_of_small_pictures']} below 56 pixels)"
        f"{'' if settings['turned'] else '; mirrored and rotated copies are found with --turned'}."
    )
    if left_out := contents["left_out"]:
        out.print(
            f"To remove all duplicates, leave out {counted(len(left_out), 'question')} "
            f"({number(len(left_out) / contents['questions'])}), pairs as a whole; --list writes their ids."
        )
    if hidden:
        say(f"Credentialed data: images and names are withheld, ids are hashed; {LOG_TEXT_VARIABLE}={name} shows them.")
    if contents["data"]["sample"]:
        out.print("SAMPLE DATA: synthetic images.")
