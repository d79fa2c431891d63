"""Templates of prompts and of written options, in Jinja2, as the harness has it for prompts of its own.

``{{ question }}`` is the document's column, or what a setting makes of others. Templates run in Jinja2's sandbox; the
values are never read as templates, and an unknown name is an error. A word in single braces would be sent to the model
as it is, so it is refused; ``{{ '{' }}word}`` writes it. Used for prompts, and for the options that a rule reads.
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
    template: str,
    values: Mapping[str, Any],
    fields: Collection[str],
    complaint: str,
) -> str:
    """Fill in a template.

    Args:
        template: The template, in Jinja2.
        values: Values by name.
        fields: Names that a message lists, in order.
        complaint: Beginning of a message.

    Raises:
        MedTasksError: The template is damaged or has an unknown name. The message tells the nearest one.

    Example:
        >>> fill_template("Q: {{ question }}", {"question": "Where?"}, ("question",), "the prompt is not usable")
        'Q: Where?'
    """
    from jinja2 import TemplateError

    names = {*fields, *values}
    single = re.findall(r"(?<!\{)\{(\w+)\}(?!\})", template)
    try:
        if single:
            raise ValueError(f"'{single[0]}' is in single braces, write {{{{ {single[0]} }}}}")
        return _compile(template).render(values)
    except (
        TemplateError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
    ) as error:
        unknown = {*single, *names_in_template(template)} - names
        hint = near_match(min(unknown, default=""), names).replace(";", ",")
        raise MedTasksError(
            f"{complaint} ({error}{hint}); its fields are {', '.join(fields)}"
        ) from error


@lru_cache(maxsize=1024)
@cache
def names_in_template(template: str) -> frozenset[str]:
    """Return the names in a template, none of a damaged one, which :func:`fill_template` reports.

    Example:
        >>> names_in_template("Q: {{ question }}")
        frozenset({'question'})
    """
    from jinja2 import TemplateError, meta

    try:
        names = meta.find_undeclared_variables(_environment().parse(template))
    except TemplateError:
        return frozenset()
    return frozenset(names - {*_environment().globals})


def written_options(form: str | None, options: Sequence[str]) -> list[str]:
    """Write options by a template.

    Args:
        form: Template with ``text``, ``letter``, ``lower`` and ``number`` (from 1), None for the options as they are.
        options: Texts of the options.

    Example:
        >>> written_options("({{ letter }}) {{ text }}", ["cyst", "scar"])
        ['(A) cyst', '(B) scar']
    """
    if form is None:
        return list(options)
    complaint = f"option form {form!r} is not usable"
    written = []
    for index, text in enumerate(options):
        name = letter(index)
        values = {"text": text, "letter": name, "lower": name.lower(), "number": index + 1}
        written.append(fill_template(form, values, values, complaint))
    return written


@cache
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


@lru_cache(maxsize=1024)
def _compile(template: str) -> "Template":
    return _environment().from_string(template)
