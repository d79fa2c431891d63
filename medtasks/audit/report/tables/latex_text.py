r"""Any text as LaTeX that compiles with every engine and without packages; no character but ASCII is left."""

import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # a shorthand for accents in German and other texts
    "`": r"{\char96}",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "‘": "{`}",
    "’": "{'}",
    "“": "{``}",
    "”": "{''}",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "°": r"$^{\circ}$",
    "µ": r"$\mu$",
    "ß": r"{\ss}",
    "ø": r"{\o}",
    "Ø": r"{\O}",
    "æ": r"{\ae}",
    "Æ": r"{\AE}",
    "œ": r"{\oe}",
    "Œ": r"{\OE}",
    "ł": r"{\l}",
    "Ł": r"{\L}",
    "ı": r"{\i}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0323": "d",
    "\u0327": "c",
}
_BREAK_AFTER = "/_,=.:"


def latex_text(text: str, *, breakable: bool = False) -> str:
    r"""Return a text as LaTeX source.

    Letters with an accent become accent commands; what LaTeX's basic fonts lack becomes its code point. White space
    becomes a blank; invisible characters go.

    Args:
        text: Any text.
        breakable: Let lines break inside names and paths, which hold no blanks.

    Example:
        >>> latex_text("50 % of a_b, é, 肺")
        "50 \\% of a\\_b, \\'{e}, \\texttt{U+80BA}"
    """
    parts: list[str] = []
    for character in unicodedata.normalize("NFC", text):
        part = _of_character(character)
        if part == "-" and parts and parts[-1].endswith("-"):
            part = "{}-"  # two make a dash
        if breakable and character in _BREAK_AFTER:
            part += r"\allowbreak{}"
        parts.append(part)
    return "".join(parts)


def _of_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isspace():
        return " "
    if character.isascii():
        return character if character.isprintable() else ""
    if unicodedata.category(character) in ("Cf", "Mn"):
        return ""
    base, accents = unicodedata.normalize("NFD", character)[:1], unicodedata.normalize("NFD", character)[1:2]
    if accents and base.isascii() and base.isalpha():
        return f"\\{_ACCENTS[accents]}{{{base}}}" if accents in _ACCENTS else base
    return rf"\texttt{{U+{ord(character):04X}}}"
