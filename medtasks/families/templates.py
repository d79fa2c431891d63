"""The language of templates, of prompts as of written options: Jinja2, as the harness has it for prompts of its own.

``{{ question }}`` is the document's column, or what a setting makes of others. Templates run in Jinja2's sandbox; what
they put in is never read as a template, and a name that is not there is an error.

Files of users also have an older form: ``{question}``, with ``{{`` and ``}}`` for braces and ``<img>`` for the place of
an image. It is translated into the other one. A template is Jinja2 where no word stands in single braces, and it has
``{%`` or a name in double braces; without a blank between them, one of something that is there.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from string import Formatter
from typing import TYPE_CHECKING, Any

from medtasks.data.samples import letter
from medtasks.errors import MedTasksError, near_match

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

IMAGE = "image"
"""The name of an image's place."""
_OLDER_IMAGE = "<img>"
_JINJA = re.compile(r"(?<!\{)\{%|\{\{-?\s+[A-Za-z_]")
_WITHOUT_BLANK = re.compile(r"\{\{-?([A-Za-z_]\w*)")
_OLDER_FIELD = re.compile(r"(?<!\{)\{\w+[^{}]*\}(?!\})")
_OPTION_FIELDS = ("text", "letter", "lower", "number")


def filled(template: str, values: Mapping[str, Any], fields: Collection[str], complaint: str) -> str:
    """Return a template with values in it, every blank and newline as it is.

    ``fields`` are the values that the older form may name. Raises MedTasksError for a template that is damaged or names
    what is not there: ``complaint``, the cause, the nearest name, and the fields.

    Example:
        >>> filled("Q: {{ question | upper }}", {"question": "{a}?"}, ["question"], "it is wrong")
        'Q: {A}?'
        >>> filled("{{Q}}: {question}", {"question": "{a}?"}, ["question"], "it is wrong")
        '{Q}: {a}?'
    """
    from jinja2 import TemplateError

    try:
        return _compiled(template, tuple(fields), _is_jinja(template, {*fields, *values})).render(values)
    except (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        known = {*fields, *values}
        hint = near_match(min(names_in_template(template) - known, default=""), known).replace(";", ",")
        raise MedTasksError(f"{complaint} ({error}{hint}); its fields are {', '.join(fields)}") from error


@lru_cache(maxsize=1024)
def names_in_template(template: str) -> frozenset[str]:
    """Return the values that a template names; none of a damaged one, which asking the question says."""
    from jinja2 import TemplateError, meta

    try:
        if not _is_jinja(template):
            return frozenset(_base(name) for _, name, *_ in Formatter().parse(template) if name)
        return frozenset(meta.find_undeclared_variables(_environment().parse(template)) - {*_environment().globals})
    except (TemplateError, ValueError):
        return frozenset()


def written_options(form: str | None, options: Sequence[str]) -> list[str]:
    """Write options the way a rule compares them; without a form the bare texts.

    A form is a template with ``text``, ``letter`` (A, B, ...), ``lower`` (a, b, ...) and ``number`` (from 1); any other
    name raises MedTasksError.

    Example:
        >>> written_options("{{ number }}: {{ text }}", ["adipose", "background"])
        ['1: adipose', '2: background']
    """
    if form is None:
        return list(options)
    complaint = f"option form {form!r} is not usable"
    names = [(letter(index), index + 1) for index in range(len(options))]
    return [
        filled(form, {"text": text, "letter": name, "lower": name.lower(), "number": at}, _OPTION_FIELDS, complaint)
        for text, (name, at) in zip(options, names, strict=True)
    ]


@cache
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


def _is_jinja(template: str, known: Collection[str] = ()) -> bool:
    tight = any(not known or name in known for name in _WITHOUT_BLANK.findall(template))
    return (tight or bool(_JINJA.search(template))) and not _OLDER_FIELD.search(template)


@lru_cache(maxsize=1024)
def _compiled(template: str, fields: tuple[str, ...], is_jinja: bool) -> "Template":
    jinja = template if is_jinja else "".join(_translated(template, fields))
    return _environment().from_string(jinja)


def _translated(older: str, fields: Collection[str]) -> Iterator[str]:
    """Yield the parts of a template in the older form as Jinja2; ValueError or KeyError where that is damaged."""
    for text, name, form, conversion in Formatter().parse(older):
        places = text.split(_OLDER_IMAGE) if IMAGE in fields else [text]
        yield f"{{{{ {IMAGE} }}}}".join(f"{{{{ {part!r} }}}}" for part in places)
        if name is None:
            continue
        base = _base(name)
        if base not in fields:
            raise KeyError(name)
        how = f"!{conversion}" * bool(conversion) + f":{form}" * bool(form)
        plain = name == base and not how
        yield f"{{{{ {base} }}}}" if plain else f"{{{{ {f'{{{name}{how}}}'!r}.format({base}={base}) }}}}"


def _base(name: str) -> str:
    """Return the value of which a field in the older form takes a part."""
    return re.split(r"[.\[]", name)[0]
