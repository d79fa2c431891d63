"""Tables of a report for an issue (Markdown) or a paper (LaTeX).

Any text becomes LaTeX that compiles with every engine and without packages; no character but ASCII is left.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace

from medtasks.audit.report.contents import RunReport
from medtasks.audit.report.tables.contents import Cell, Table, report_tables
from medtasks.audit.report.words import NOT_DEFINED

_ROWS = 40  # of a table in LaTeX; more do not fit on a page
_LATEX_HEAD = (
    "% Tables of medtasks; \\input this file. Needs \\usepackage{booktabs,graphicx}.\n"
    "% Values are rounded; report --json has all digits.\n"
)
_WIDTH = r"\ifdim\width>\linewidth\linewidth\else\width\fi"
_LONG_TEXT = r"p{0.7\linewidth}"
_ALIGNMENTS = {"l": ":--", "p": ":--", "r": "--:"}
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
_BREAK_AFTER = "/_"
_LONG = re.compile(r"\S{31,}")  # names and paths in which a line has to break


def markdown(report: RunReport) -> str:
    """Return the report's tables as Markdown with GitHub's tables, a section per task.

    A table of sample data, of an incomplete dataset or of a run of a part of the questions says so in its first row.
    Of tasks whose data are withheld there are scores only, as of all others.
    """
    lines = [f"# {_plain(report.title)}", ""]
    numbers = itertools.count(1)
    for heading, tables in report_tables(report):
        lines += [f"## {_plain(heading)}", ""]
        for table in tables:
            lines += [*_markdown_table(table, next(numbers)), ""]
    return "\n".join(lines)


def latex(report: RunReport) -> str:
    r"""Return the report's tables as LaTeX: ``table`` environments to ``\input``, with ``\label{tab:...}``.

    Needs the packages booktabs and graphicx. Every table has its caption, warnings and notes with it, so that it may be
    copied alone; one of more than 40 rows is several. Warnings are rows, as in :func:`markdown`.
    """
    lines = [_LATEX_HEAD]
    for heading, tables in report_tables(report):
        lines.append(f"% {latex_text(heading)}")
        for table in tables:
            lines += [line for part in _parts(table) for line in (*_latex_table(*part), "")]
        lines.append("\\clearpage\n")  # LaTeX gives up when too many tables wait for a place
    return "\n".join(lines)


def _markdown_table(table: Table, number: int) -> Iterator[str]:
    yield f"**Table {number}.** {_plain(table.caption)}"
    yield ""
    yield _markdown_row(table.headings)
    yield "| " + " | ".join(_ALIGNMENTS[column] for column in table.columns) + " |"
    for warning in table.warnings:
        yield f"| **{_plain(warning)}** |" + " |" * (len(table.columns) - 1)
    for row in table.rows:
        yield _markdown_row(row)
    marked = any(cell.marks for row in table.rows for cell in row)
    for position, note in enumerate(table.notes, 1):
        if position == 1:
            yield ""
        yield f"- {_mark(position)} {_plain(note)}" if marked else f"- {_block(note)}"


def _markdown_row(row: tuple[Cell, ...]) -> str:
    return "| " + " | ".join(map(_markdown_cell, row)) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = _code(cell.text) if cell.code and cell.text != NOT_DEFINED else _plain(cell.text)
    return text + "".join(map(_mark, cell.marks))


def _mark(number: int) -> str:
    return f"<sup>{number}</sup>"


def _code(text: str) -> str:
    """Return a code span; a bar in it must be escaped even there, because it would end the cell."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{_one_line(text)}{pad}{fence}".replace("|", r"\|")


def _plain(text: str) -> str:
    """Return a text in which Markdown sees no markup; an underscore inside a word is none."""
    escaped = re.sub(r"([\\`*\[\]|~$])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])", r"\\\1\2\3", _one_line(text))
    return re.sub("&(?=[#A-Za-z])", "&amp;", escaped).replace("<", "&lt;").replace(">", "&gt;")


def _block(text: str) -> str:
    """Return a text that begins no heading or list of its own."""
    return re.sub(r"^(\d*)([#+.)-])", r"\1\\\2", _plain(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _parts(table: Table) -> Iterator[tuple[Table, str, str]]:
    """Yield a table in parts that fit on a page, each with what its caption and its label end in."""
    starts = range(0, len(table.rows), _ROWS)
    for part, start in enumerate(starts, 1):
        rows = table.rows[start : start + _ROWS]
        shown = replace(table, rows=rows, ours=table.ours if part == 1 else 0)
        yield (shown, "", "") if len(starts) == 1 else (shown, f" Part {part} of {len(starts)}.", f".{part}")


def _latex_table(table: Table, caption: str, label: str) -> Iterator[str]:
    columns = "".join(_LONG_TEXT if column == "p" else column for column in table.columns)
    fits = "p" in table.columns
    yield "\\begin{table}[htbp]"
    yield "  \\centering"
    yield "  \\footnotesize"
    yield f"  \\caption{{{latex_text(table.caption + caption, breakable=True)}}}"
    yield f"  \\label{{tab:{table.label}{label}}}"
    yield "  % no wider than the text" if fits else f"  \\resizebox{{{_WIDTH}}}{{!}}{{%"
    yield f"  \\begin{{tabular}}{{{columns}}}"
    yield "    \\toprule"
    yield f"    {_latex_row(table.headings)}"
    yield "    \\midrule"
    for warning in table.warnings:
        yield f"    \\multicolumn{{{len(table.columns)}}}{{l}}{{\\textbf{{{latex_text(warning)}}}}} \\\\"
    if table.warnings:
        yield "    \\midrule"
    for position, row in enumerate(table.rows):
        if position and position == table.ours:
            yield "    \\midrule"
        yield f"    {_latex_row(row)}"
    yield "    \\bottomrule"
    yield "  \\end{tabular}" + ("" if fits else "}")
    if table.notes:
        yield from _latex_notes(table)
    yield "\\end{table}"


def _latex_notes(table: Table) -> Iterator[str]:
    marked = any(cell.marks for row in table.rows for cell in row)
    yield "  \\par\\smallskip"
    yield "  \\begin{minipage}{\\linewidth}"
    yield "    \\scriptsize\\raggedright"
    for position, note in enumerate(table.notes, 1):
        mark = f"\\textsuperscript{{{position}}}" if marked else ""
        yield f"    {mark}{latex_text(note, breakable=True)}\\par"
    yield "  \\end{minipage}"


def _latex_row(row: tuple[Cell, ...]) -> str:
    text = " & ".join(map(_latex_cell, row))
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"  # "\\" and "\midrule" would take [ for theirs


def _latex_cell(cell: Cell) -> str:
    if cell.text == NOT_DEFINED:
        return "--"
    text = latex_text(cell.text, breakable=len(cell.text) > 40)
    marks = ",".join(map(str, cell.marks))
    return (f"\\texttt{{{text}}}" if cell.code else text) + (f"\\textsuperscript{{{marks}}}" if marks else "")


def latex_text(text: str, *, breakable: bool = False) -> str:
    r"""Return a text as LaTeX source; lines may break inside long names and paths of a ``breakable`` one.

    Letters with an accent become accent commands; what LaTeX's basic fonts lack becomes its code point. White space
    becomes a blank; invisible characters go.

    Example:
        >>> latex_text("50 % of a_b, é, 肺")
        "50 \\% of a\\_b, \\'{e}, \\texttt{U+80BA}"
    """
    parts: list[str] = []
    text = unicodedata.normalize("NFC", text)
    places = {place for found in _LONG.finditer(text) for place in range(*found.span())} if breakable else set()
    for place, character in enumerate(text):
        part = _of_character(character)
        if part == "-" and parts and parts[-1].endswith("-"):
            part = "{}-"  # two make a dash
        if place in places and character in _BREAK_AFTER:
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
