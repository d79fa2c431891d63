"""The page of a run: one HTML file that opens from disk, without a server and without the network."""

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks import __version__
from medtasks.errors import MedTasksError
from medtasks.report.contents import RunReport
from medtasks.report.page import rows, words
from medtasks.report.page.items import audit_data, json_in_html, picture_uris, pictures_without_file, shown_pictures
from medtasks.report.page.pictures import thumbnails

_TEMPLATES = "templates"
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
    rows.anchor,
)


def write_page(report: RunReport, path: Path, figures: Mapping[str, str] | None = None) -> None:
    """Write a report as one HTML file.

    The file loads nothing: style, script, pictures and data are inside, and its content security policy forbids
    everything else, scripts in a model's reply included.

    Args:
        report: What the page says.
        path: The file; its folder must exist. It appears complete or not at all.
        figures: SVG elements by key, see :mod:`medtasks.report.figures.drawing`; tables show the same numbers without
            them.

    Raises:
        MedTasksError: The file cannot be written.
    """
    page = _rendered(report, figures or _NO_FIGURES)
    try:
        _write_atomically(path, page)
    except OSError as error:
        raise MedTasksError(
            f"cannot write the page {path}: {error.strerror or error}; make room, or name a file in another folder"
        ) from error


def _rendered(report: RunReport, figures: Mapping[str, str]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("medtasks.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name.__name__: name for name in _FILTERS})
    pictures = thumbnails(shown_pictures(report))
    script = _own_text("page.js")
    values: dict[str, Any] = {
        "report": report,
        "version": __version__,
        "figures": {key: Markup(figure) for key, figure in figures.items()},
        "pictures": pictures,
        "unreadable": pictures.unreadable + pictures_without_file(report),
        "policy": _policy(script),
        "style": Markup(_own_text("page.css")),
        "script": Markup(script),
        "data": Markup(json_in_html(audit_data(report, pictures))),
        "uris": Markup(json_in_html(picture_uris(pictures))),
        "tables": rows,
        "words": words,
    }
    return environment.get_template("page.html").render(values)


def _own_text(name: str) -> str:
    return files("medtasks.report").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Return the content security policy under which only our own script runs, and nothing is loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    rules = ("default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:")
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def _write_atomically(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Half of a surrogate pair, which a group's name may hold, is no UTF-8.
        scratch.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
