"""A drawn figure as an SVG element that may stand beside others in a page, or as the bytes of a file."""

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONTS = "'DejaVu Sans', Verdana, Arial, Helvetica, sans-serif"
_NO_METADATA = {
    "svg": ("Creator", "Date", "Format", "Type"),
    "png": ("Software",),
    "pdf": ("Creator", "Producer", "CreationDate"),
}
FORMATS = tuple(_NO_METADATA)
"""What a figure can be written as."""

_DPI = 200
_INVISIBLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True)
class Drawing:
    """A figure and what it shows.

    Attributes:
        figure: By matplotlib.
        title: What it is, a few words.
        describes: What a reader has to know who does not see it, sentences.
    """

    figure: "Figure"
    title: str
    describes: str


def shown_text(text: str) -> str:
    r"""Return a text without characters that no XML file may hold, white space as single blanks.

    Example:
        >>> shown_text("a\n\x00b")
        'a b'
    """
    return " ".join(_INVISIBLE.sub(" ", text).split())


def svg_element(drawing: Drawing, key: str) -> str:
    """Return a drawing as ``<svg>`` for a page.

    It has no style sheet and no style attributes, which a page's security policy may forbid and which would reach
    beyond it; its ids begin with the key.
    """
    text = file_content(drawing.figure, "svg").decode()
    prefix = "figure-" + re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found.group()):x}-", key) + "-"
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", lambda tag: _without_style(_with_prefix(tag.group(), prefix)), body)
    start = (
        f'<svg role="img" aria-labelledby="{prefix}title {prefix}describes" stroke-linejoin="round" '
        f'stroke-linecap="butt"'
    )
    about = (
        f'<title id="{prefix}title">{escape(shown_text(drawing.title))}</title>'
        f'<desc id="{prefix}describes">{escape(shown_text(drawing.describes))}</desc>'
    )
    root, _, inner = re.sub(r">\s+<", "><", body).partition(">")
    return f"{start}{root.removeprefix('<svg')}>{about}{inner.strip()}"


def file_content(figure: "Figure", form: str) -> bytes:
    """Return a figure as a file, the same at every time."""
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=_DPI, metadata=dict.fromkeys(_NO_METADATA[form]))
    return content.getvalue()


def _with_prefix(tag: str, prefix: str) -> str:
    return re.sub(r'( id="|href="#|url\(#)', lambda found: found.group() + prefix, tag)


def _without_style(tag: str) -> str:
    """Turn a style attribute into attributes of their own, and name fonts that other systems have."""

    def attributes(found: re.Match[str]) -> str:
        pairs = dict(part.split(":", 1) for part in found.group(1).split(";"))
        values = {name.strip(): value.strip() for name, value in pairs.items()}
        if "font-family" in values:
            values["font-family"] = _FONTS
        return "".join(f" {name}={quoteattr(value)}" for name, value in values.items())

    return re.sub(r' style="([^"]*)"', attributes, tag)
