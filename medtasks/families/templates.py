"""Templates of prompts and of written options, in Jinja2, as the harness has it for prompts of its own.

``{{ question }}`` is the document's column, or what a setting makes of others. Templates run in Jinja2's sandbox; the
values are never read as templates, and an unknown name is an error. A word in single braces would be sent to the model
as it is, so it is refused; ``{{ '{' }}word}`` writes it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from medtasks.data.samples import letter
from medtasks.errors import MedTasksError, near_match

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

IMAGE = "image"  # name of the placeholder of an image


def fill_template(
    template: str, values: Mapping[str, Any], fields: Collection[str], complaint: str
) -> str:
    """Fill in a template, or raise MedTasksError: ``complaint``, the cause, the nearest name and the ``fields``."""
    from jinja2 import TemplateError

    names, single = {*fields, *values}, re.findall(r"(?<!\{)\{(\w+)\}(?!\})", template)
    try:
        if single:
            raise ValueError(f"'{single[0]}' is in single braces, write {{{{ {single[0]} }}}}")
        return _compiled(template).render(values)
    except (
        TemplateError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
    ) as error:
        hint = near_match(
            min({*single, *names_in_template(template)} - names, default=""), names
        ).replace(";", ",")
        raise MedTasksError(
            f"{complaint} ({error}{hint}); its fields are {', '.join(fields)}"
        ) from error


@lru_cache(maxsize=1024)
@cache
def names_in_template(template: str) -> frozenset[str]:
    """Return the names in a template; none of a damaged one, which :func:`fill_template` reports."""
    from jinja2 import TemplateError, meta

    try:
        return frozenset(
            meta.find_undeclared_variables(_environment().parse(template))
            - {*_environment().globals}
        )
    except TemplateError:
        return frozenset()


def written_options(form: str | None, options: Sequence[str]) -> list[str]:
    """Write options by a template with ``text``, ``letter``, ``lower`` and ``number`` (from 1), else as they are."""
    if form is None:
        return list(options)
    complaint = f"option form {form!r} is not usable"
    names = [(letter(index), index + 1) for index in range(len(options))]
    fields = ("text", "letter", "lower", "number")
    return [
        fill_template(
            form,
            dict(zip(fields, (text, name, name.lower(), number), strict=True)),
            fields,
            complaint,
        )
        for text, (name, number) in zip(options, names, strict=True)
    ]


@cache
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


@lru_cache(maxsize=1024)
def _compiled(template: str) -> "Template":
    return _environment().from_string(template)
