"""Pages: each one HTML file that opens from disk, without a server and without the network."""

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from medtasks import __version__
from medtasks.audit.report import rows, words
from medtasks.audit.report.contents import RunReport
from medtasks.audit.report.page.items import (
    audit_data,
    image_decodings,
    images_without_file,
    json_in_html,
    shown_images,
)
from medtasks.audit.report.page.thumbnails import thumbnails
from medtasks.errors import MedTasksError

_TEMPLATES = "templates"
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

    The file loads nothing: style, script, images and data are inside, and its content security policy forbids
    everything else, scripts in a model's reply included.

    Args:
        report: What the page says.
        path: The file; its folder must exist. It appears complete or not at all.
        figures: SVG elements by key, see :mod:`medtasks.audit.report.figures.drawing`; tables show the same numbers
            without them.

    Raises:
        MedTasksError: The file cannot be written.
    """
    from markupsafe import Markup

    images = thumbnails(shown_images(report), decodings=image_decodings(report))
    page = rendered(
        "page",
        report=report,
        figures={key: Markup(figure) for key, figure in (figures or {}).items()},
        pictures=images,
        unreadable=images.unreadable + images_without_file(report),
        style=Markup(_own_text("page.css")),
        data=Markup(json_in_html(audit_data(report, images))),
        uris=Markup(json_in_html([one.uri for one in images.by_file.values()])),
        tables=rows,
        words=words,
    )
    write_whole(path, page)


def rendered(name: str, **values: Any) -> str:
    """Return a page of our templates, which escape every value and take no undefined one.

    Args:
        name: Of the template and of the page's only script.
        values: What the template names, besides ``version``, ``script`` and ``policy``.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("medtasks.audit.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({one.__name__: one for one in _FILTERS})
    script = _own_text(f"{name}.js")
    page: str = environment.get_template(f"{name}.html").render(
        version=__version__, script=Markup(script), policy=_content_policy(script), **values
    )
    return page


def _own_text(name: str) -> str:
    return files("medtasks.audit.report").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def _content_policy(script: str) -> str:
    """Return the content security policy under which only our own script runs, and nothing is loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    rules = ("default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:")
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def write_whole(path: Path, text: str) -> None:
    """Write a page, which appears complete or not at all.

    Raises:
        MedTasksError: It cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Half of a surrogate pair, which a group's name may hold, is no UTF-8.
        scratch.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        scratch.replace(path)
    except OSError as error:
        raise MedTasksError(
            f"cannot write the page {path}: {error.strerror or error}; make room, or name a file in another folder "
            f"with --html"
        ) from error
    finally:
        scratch.unlink(missing_ok=True)
