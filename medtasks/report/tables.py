"""Tables of scores, and their output to the terminal, as Markdown and as LaTeX. Pages have a template.

Any text becomes LaTeX that compiles with every engine and without packages; no character but ASCII is left.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from rich.table import Table as RichTable
from rich.text import Text

from medtasks.errors import plain

INTERVALS = "Brackets hold 95 % intervals."  # a note that only tables with brackets keep
NOT_DEFINED = "n/a"  # text of a number that is not defined
_ROWS = 40  # of a table in LaTeX; more do not fit on a page
_LATEX_HEAD = (
    "% Tables of medtasks; \\input this file. Needs \\usepackage{booktabs,graphicx}.\n"
    "% Values are rounded; report --json has all digits.\n"
)
# Letters and their commands, symbols and their formulas.
_LETTERS = dict(
    zip("ßøØæÆœŒłŁı", ["ss", "o", "O", "ae", "AE", "oe", "OE", "l", "L", "i"], strict=True)
)
_FORMULAS = dict(
    zip(
        "−×±≤≥→µ",
        [r"-", r"\times", r"\pm", r"\leq", r"\geq", r"\rightarrow", r"\mu"],
        strict=True,
    )
)
_QUOTES = {
    "–": "--",
    "—": "---",
    "‘": "{`}",
    "’": "{'}",
    "“": "{``}",
    "”": "{''}",
    "…": r"\ldots{}",
}
_STYLES = ("", "bold", "underline")  # in the terminal, by place
_PLACES = {1: r"\textbf{%s}", 2: r"\underline{%s}"}
_SPECIAL = {
    **_QUOTES,
    **{character: f"${formula}$" for character, formula in _FORMULAS.items()},
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{letter: f"{{\\{command}}}" for letter, command in _LETTERS.items()},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # a shorthand for accents in German and other texts
    "`": r"{\char96}",
    "°": r"$^{\circ}$",
}
# Combining characters and their accent commands.
_ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0323\u0327",
        "`'^~=u.\"rHvdc",
        strict=True,
    )
)
_LONG = re.compile(r"\S{31,}")  # names and paths in which a line has to break


@dataclass(frozen=True)
class Cell:
    """One cell. Only a page shows its remark, bar and link."""

    text: str
    code: bool = False  # whether it is a name as one types it
    marks: tuple[int, ...] = ()  # numbers of the notes that are about it
    remark: str = ""
    # Of a share: its value, both ends of its interval and another value to mark, or fewer of these.
    bar: tuple[float, ...] = ()
    link: str = ""  # what it leads to on the page
    place: int = 0  # 1 for the best value of a column, 2 for the second best, 0 for others


Row = tuple[Cell, ...]  # one cell per column


@dataclass(frozen=True)
class Table:
    """One table."""

    label: str  # unique in the report; of letters, digits and "-_."
    caption: str
    columns: str  # a letter per column: l and r for left and right, p for long text
    headings: Row
    rows: Sequence[Row]
    # Sentences that must not be overlooked, which become rows before the others.
    warnings: tuple[str, ...] = ()
    notes: Sequence[str] = ()  # sentences below the table; a cell's marks count from 1
    split: int = 0  # how many of the first rows a line separates from the others; 0 for no line

    def __post_init__(self) -> None:
        if not any("[" in cell.text for cell in chain.from_iterable(self.rows)):
            kept = [note for note in self.notes if note != INTERVALS]
            object.__setattr__(self, "notes", kept)

    @property
    def has_marks(self) -> bool:
        """Whether cells refer to notes by their numbers."""
        return any(cell.marks for cell in chain.from_iterable(self.rows))


Sections = Iterable[tuple[str, Sequence[Table]]]  # heading and tables of each


def name_cell(text: str) -> Cell:
    """Return a cell with a name in code type.

    Example:
        >>> name_cell("robust")
        Cell(text='robust', code=True, marks=(), remark='', bar=(), link='', place=0)
    """
    return Cell(text, code=True)


def cells(*texts: str | Cell) -> Row:
    """Return a cell per text. Cells stay as they are.

    Example:
        >>> [cell.code for cell in cells("17", name_cell("robust"))]
        [False, True]
    """
    return tuple(Cell(text) if isinstance(text, str) else text for text in texts)


def number_table(
    caption: str,
    headings: Sequence[str | Cell],
    rows: Iterable[Sequence[str | Cell]],
    split: int = 0,
) -> Table:
    """Return a table with a column of names and columns of numbers.

    Args:
        caption: Its caption.
        headings: One per column.
        rows: Texts or cells, one per column.
        split: Number of rows above a line; 0 for no line.
    """
    columns = "l" + "r" * (len(headings) - 1)
    return Table(
        "",
        caption,
        columns,
        cells(*headings),
        [cells(*row) for row in rows],
        notes=(INTERVALS,),
        split=split,
    )


def terminal(table: Table) -> RichTable:
    """Return a table for the terminal.

    Long names go on in the next line: cut short, two of them could be one.
    """
    rich_table = RichTable(title=Text(plain(table.caption)) if table.caption else None)
    for index, (heading, column) in enumerate(zip(table.headings, table.columns, strict=True)):
        short = all(row[index].code and len(row[index].text) <= 24 for row in table.rows)
        justify: Literal["left", "right"] = "right" if column == "r" else "left"
        rich_table.add_column(
            Text(heading.text), justify=justify, overflow="fold", no_wrap=short
        )
    for position, row in enumerate(table.rows, 1):
        texts = [Text(plain(cell.text), _STYLES[cell.place]) for cell in row]
        rich_table.add_row(*texts, end_section=position == table.split)
    return rich_table


def markdown(title: str, sections: Sections) -> str:
    """Return sections of tables as Markdown with GitHub's tables.

    Args:
        title: First heading of the text.
        sections: Heading and tables of each. Warnings are the first rows of a table.
    """
    lines = [f"# {_plain(title)}", ""]
    number = 0
    for heading, tables in sections:
        lines += [f"## {_plain(heading)}", ""]
        for table in tables:
            number += 1
            lines += [
                f"**Table {number}.** {_plain(table.caption)}",
                "",
                *_markdown_table(table),
                "",
            ]
    return "\n".join(lines)


def _markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table: headings, warnings, rows, and notes as a list."""
    yield _markdown_row(table.headings)
    rules = ["--:" if column == "r" else ":--" for column in table.columns]
    yield f"| {' | '.join(rules)} |"
    empty_cells = " |" * (len(table.columns) - 1)
    for warning in table.warnings:
        yield f"| **{_plain(warning)}** |{empty_cells}"
    yield from map(_markdown_row, table.rows)
    if table.notes:
        yield ""
    for position, note in enumerate(table.notes, 1):
        text = _plain(note)
        # A note begins no heading or list of its own.
        opening = re.sub(r"^(\d*)([#+.)-])", r"\1\\\2", text)
        yield f"- <sup>{position}</sup> {text}" if table.has_marks else f"- {opening}"


def latex(sections: Sections) -> str:
    r"""Return sections of tables as LaTeX, which needs the packages booktabs and graphicx.

    Args:
        sections: Heading and tables of each. A table of more than 40 rows is several. Warnings are rows.

    Returns:
        ``table`` environments to ``\input``, with ``\label{tab:...}``.
    """
    lines = [_LATEX_HEAD]
    for heading, tables in sections:
        lines.append(f"% {latex_text(heading)}")
        for table in tables:
            lines += _latex_table(table)
        lines.append("\\clearpage\n")  # LaTeX gives up when too many tables wait for a place
    return "\n".join(lines)


def _markdown_row(row: Row) -> str:
    """Return a row in Markdown: names in backticks, best values bold, and numbers of notes raised."""
    texts = []
    for cell in row:
        is_code = cell.code and cell.text != NOT_DEFINED
        text = _markdown_code(cell.text) if is_code else _plain(cell.text)
        if cell.place:
            text = f"**{text}**" if cell.place == 1 else f"<u>{text}</u>"
        texts.append(text + "".join(f"<sup>{number}</sup>" for number in cell.marks))
    return "| " + " | ".join(texts) + " |"


def _plain(text: str) -> str:
    """Return a text in which Markdown sees no markup. An underscore inside a word is none."""
    escaped = re.sub(
        r"([\\`*\[\]|~$])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])",
        r"\\\1\2\3",
        " ".join(text.split()),
    )
    return re.sub("&(?=[#A-Za-z])", "&amp;", escaped).replace("<", "&lt;").replace(">", "&gt;")


def _markdown_code(text: str) -> str:
    """Return a text in backticks, in more of them than it has in a row itself."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    code = f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"
    return code.replace("|", r"\|")  # a bar would end the cell even there


def _latex_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table, in parts that fit on a page."""
    starts = range(0, len(table.rows), _ROWS)
    columns = table.columns.replace("p", r"p{0.7\linewidth}")
    width = r"\ifdim\width>\linewidth\linewidth\else\width\fi"
    fits = "p" in table.columns
    for part, start in enumerate(starts, 1):
        caption = table.caption
        label = table.label
        if len(starts) > 1:
            caption += f" Part {part} of {len(starts)}."
            label += f".{part}"
        yield "\\begin{table}[htbp]"
        yield "  \\centering"
        yield "  \\footnotesize"
        yield f"  \\caption{{{latex_text(caption, breakable=True)}}}"
        yield f"  \\label{{tab:{label}}}"
        yield "  % no wider than the text" if fits else f"  \\resizebox{{{width}}}{{!}}{{%"
        yield f"  \\begin{{tabular}}{{{columns}}}"
        yield "    \\toprule"
        yield f"    {_latex_row(table.headings)}"
        yield "    \\midrule"
        for warning in table.warnings:
            yield f"    \\multicolumn{{{len(table.columns)}}}{{l}}{{\\textbf{{{latex_text(warning)}}}}} \\\\"
        if table.warnings:
            yield "    \\midrule"
        for position, row in enumerate(table.rows[start : start + _ROWS]):
            if position and position == table.split and part == 1:
                yield "    \\midrule"
            yield f"    {_latex_row(row)}"
        yield "    \\bottomrule"
        yield "  \\end{tabular}" if fits else "  \\end{tabular}}"
        yield from _latex_notes(table)
        yield "\\end{table}\n"


def _latex_notes(table: Table) -> Iterator[str]:
    """Yield the notes of a table, if it has any, in small print, with their numbers if cells refer to them."""
    if not table.notes:
        return
    yield "  \\par\\smallskip"
    yield "  \\begin{minipage}{\\linewidth}"
    yield "    \\scriptsize\\raggedright"
    for position, note in enumerate(table.notes, 1):
        mark = f"\\textsuperscript{{{position}}}" if table.has_marks else ""
        yield f"    {mark}{latex_text(note, breakable=True)}\\par"
    yield "  \\end{minipage}"


def _latex_row(row: Row) -> str:
    """Return a row in LaTeX, in which undefined numbers are dashes."""
    texts = []
    for cell in row:
        if cell.text == NOT_DEFINED:
            texts.append("--")
            continue
        text = latex_text(cell.text, breakable=len(cell.text) > 40)
        if cell.code:
            text = f"\\texttt{{{text}}}"
        if cell.place:
            text = _PLACES[cell.place] % text
        if cell.marks:
            text += f"\\textsuperscript{{{','.join(map(str, cell.marks))}}}"
        texts.append(text)
    line = " & ".join(texts)
    # The line before ends in "\\" or "\midrule", which would take a bracket or an asterisk for its own.
    start = "{}" if line.startswith(("[", "*")) else ""
    return start + line + r" \\"


def latex_text(text: str, *, breakable: bool = False) -> str:
    r"""Return a text as LaTeX source.

    Letters with an accent become accent commands. A character that LaTeX's basic fonts lack becomes its code point.

    Args:
        text: Any text.
        breakable: Whether lines may break inside long names and paths.

    Example:
        >>> latex_text("50 % of a_b, é, 肺")
        "50 \\% of a\\_b, \\'{e}, \\texttt{U+80BA}"
    """
    parts: list[str] = []
    text = unicodedata.normalize("NFC", text)
    breaks: set[int] = set()
    if breakable:
        for match in _LONG.finditer(text):
            breaks.update(range(*match.span()))
    for index, character in enumerate(text):
        part = _latex_character(character)
        if part == "-" and parts and parts[-1].endswith("-"):
            part = "{}-"  # two make a dash
        if index in breaks and character in "/_":
            part += r"\allowbreak{}"
        parts.append(part)
    return "".join(parts)


def _latex_character(character: str) -> str:
    """Return a character as LaTeX source: a command, an accent command, its code point, or nothing if invisible."""
    base, *accents = list(unicodedata.normalize("NFD", character))
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isspace():
        return " "
    if character.isascii():
        return character if character.isprintable() else ""
    if unicodedata.category(character) in ("Cf", "Mn"):
        return ""
    if accents and base.isascii() and base.isalpha():
        return f"\\{_ACCENTS[accents[0]]}{{{base}}}" if accents[0] in _ACCENTS else base
    return rf"\texttt{{U+{ord(character):04X}}}"
