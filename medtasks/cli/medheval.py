"""``medtasks data prepare`` for MedHEval: first what there is, then the sets that can be prepared."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from medtasks.cli.output import say
from medtasks.data.catalogue import dataset_info
from medtasks.data.manifest import Manifest
from medtasks.errors import MedTasksError

if TYPE_CHECKING:
    from medtasks.data.medheval.preparing import Readiness
    from medtasks.data.preparation import Options

MEDHEVAL = "medheval"


def image_folders(given: Sequence[str]) -> dict[str, Path]:
    """Return the folders that ``--images SOURCE=DIR`` names, by source."""
    folders: dict[str, Path] = {}
    for text in given:
        source, separator, folder = text.partition("=")
        if not (source and separator and folder):
            raise typer.BadParameter(f"--images {text}: give SOURCE=DIR, such as slake=/data/slake/imgs")
        if source in folders:
            raise typer.BadParameter(f"--images names {source} twice")
        folders[source] = Path(folder).expanduser()
    return folders


def prepare_medheval(name: str, options: "Options", report: Callable[[Manifest], None]) -> None:
    """Prepare one set of MedHEval, or with the name ``medheval`` all that can be, after saying what was found.

    The manifest of each prepared set goes to ``report``.
    """
    from medtasks.data.medheval.preparing import preflight, survey
    from medtasks.data.preparers import prepare

    if name != MEDHEVAL:
        for count in preflight(dataset_info(name), options) if options.source is not None else ():
            _print_count(count.source, len(count.found), len(count.found) + len(count.missing))
        report(prepare(name, options))
        return
    found = survey(options)
    _print_survey(found)
    ready = [readiness.name for readiness in found if readiness.cause is None]
    if not ready:
        raise MedTasksError(
            "no set of MedHEval can be prepared; name the folders of images with --images SOURCE=DIR, or accept an "
            "incomplete set with --allow-incomplete"
        )
    for dataset in ready:
        report(prepare(dataset, options))


def _print_count(source: str, found: int, named: int) -> None:
    from medtasks.data.medheval.records import IMAGE_SOURCES

    missing = f", {named - found} missing" if found < named else ""
    say(f"images of {IMAGE_SOURCES[source].title}: {found} of {named} found{missing}")


def _print_survey(found: Sequence["Readiness"]) -> None:
    from medtasks.data.medheval.preparing import image_totals, largest_group

    for key, (there, named) in image_totals(found).items():
        _print_count(key, there, named)
    for readiness in found:
        if readiness.cause is not None:
            say(f"not prepared: {readiness.name}, {readiness.cause}")
    group = largest_group(found)
    what = f"lmms_eval --tasks {group}" if group else "no group, only the sets named below"
    say(f"Largest group that can run now: {what}")
