"""HTML files that open from disk and load nothing: templates, the policy that forbids it, and writing them whole."""

import base64
import hashlib
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError

_TEMPLATES = "templates"


def page_environment() -> Any:
    """Return the Jinja environment of our templates, which escapes every value and takes no undefined one."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("medtasks.audit.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own_text(name: str) -> str:
    """Return a style sheet or script that lies beside the templates."""
    return files("medtasks.audit.report").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def content_policy(script: str) -> str:
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
