"""The page of a run: one HTML file that opens from disk, without a server and without the network."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks import __version__
from medtasks.audit.report.contents import RunReport
from medtasks.audit.report.page import rows, words
from medtasks.audit.report.page.items import (
    audit_data,
    json_in_html,
    picture_decodings,
    picture_uris,
    pictures_without_file,
    shown_pictures,
)
from medtasks.audit.report.page.pictures import thumbnails
from medtasks.audit.report.self_contained import content_policy, own_text, page_environment, write_whole

_NO_FIGURES: Mapping[str, str] = MappingProxyType({})
_FILTERS = (
    words.number,
    words.interval,
    words.points,
    words.signed,
    words.difference_interval,
    words.p_value,
    words.count,
    words.counted,
    words.moment,
    rows.anchor,
)


def write_page(report: RunReport, path: Path, figures: Mapping[str, str] | None = None) -> None:
    """Write a report as one HTML file.

    The file loads nothing: style, script, pictures and data are inside, and its content security policy forbids
    everything else, scripts in a model's reply included.

    Args:
        report: What the page says.
        path: The file; its folder must exist. It appears complete or not at all.
        figures: SVG elements by key, see :mod:`medtasks.audit.report.figures.drawing`; tables show the same numbers
            without them.

    Raises:
        MedTasksError: The file cannot be written.
    """
    write_whole(path, _rendered(report, figures or _NO_FIGURES))


def _rendered(report: RunReport, figures: Mapping[str, str]) -> str:
    from markupsafe import Markup

    environment = page_environment()
    environment.filters.update({name.__name__: name for name in _FILTERS})
    pictures = thumbnails(shown_pictures(report), decodings=picture_decodings(report))
    script = own_text("page.js")
    values: dict[str, Any] = {
        "report": report,
        "version": __version__,
        "figures": {key: Markup(figure) for key, figure in figures.items()},
        "pictures": pictures,
        "unreadable": pictures.unreadable + pictures_without_file(report),
        "policy": content_policy(script),
        "style": Markup(own_text("page.css")),
        "script": Markup(script),
        "data": Markup(json_in_html(audit_data(report, pictures))),
        "uris": Markup(json_in_html(picture_uris(pictures))),
        "tables": rows,
        "words": words,
    }
    page: str = environment.get_template("page.html").render(values)
    return page
