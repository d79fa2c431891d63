"""A page to look at duplicates side by side: one HTML file that opens from disk and loads nothing."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks import __version__
from medtasks.audit.report.duplicates.contents import Names, not_compared, shown_files
from medtasks.audit.report.page.pictures import Thumbnail, thumbnails
from medtasks.audit.report.page.words import counted
from medtasks.audit.report.self_contained import content_policy, own_text, page_environment, write_whole
from medtasks.data.duplicates.finding import Concern, Duplicates, Finding, Kind

MOST_SHOWN = 250
"""Findings shown of each of the two lists; the JSON has all."""

_HIDDEN = Thumbnail("", remark="credentialed data: not shown")


def write_duplicates_page(
    contents: Mapping[str, Any], found: Duplicates, names: Names, path: Path, *, sample: bool
) -> None:
    """Write the page.

    Args:
        contents: What :func:`medtasks.audit.report.duplicates.contents.duplicates_as_dict` gave.
        found: The same findings with their files, for the pictures.
        names: What may be shown.
        path: The file, which appears complete or not at all.
        sample: The dataset is a drawn sample.

    Raises:
        MedTasksError: The file cannot be written.
    """
    against = contents["against"]
    pairs = [_shown(found.within, names), _shown(found.outside, names)]
    small = thumbnails(file for file in chain.from_iterable(chain(*pairs)) if file).by_file
    cards = [
        [
            {**one, "thumbnails": [small[file] if file else _HIDDEN for file in both]}
            for one, both in zip(listed, shown, strict=False)
        ]
        for listed, shown in zip((contents["within"], against["findings"] if against else []), pairs, strict=True)
    ]
    page = _rendered(
        contents=contents,
        against=against,
        within=cards[0],
        outside=cards[1],
        most=MOST_SHOWN,
        not_compared=not_compared(contents),
        counted=counted,
        kinds=[str(kind) for kind in Kind],
        concerns=[str(concern) for concern in Concern],
        groups=[len(group) for group in contents["groups"]],
        hidden=names.hidden,
        sample=sample,
    )
    write_whole(path, page)


def _shown(findings: Sequence[Finding], names: Names) -> list[tuple[Path | None, Path | None]]:
    return [shown_files(finding, names) for finding in findings[:MOST_SHOWN]]


def _rendered(**values: Any) -> str:
    from markupsafe import Markup

    script = own_text("duplicates.js")
    template = page_environment().get_template("duplicates.html")
    page: str = template.render(version=__version__, script=Markup(script), policy=content_policy(script), **values)
    return page
