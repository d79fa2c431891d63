"""Option lines: how a benchmark writes an option, with its letter before the text.

MedEvalKit shows `` A: Green `` (PMC-VQA, where the letter may be another one than that of the option), ``A. Green``,
``A.Green`` (MedFrameQA) and ``(A) Green`` (MMMU), and compares replies with these lines.
"""

import re

_BEFORE = re.compile(r"(\s*\(?)([A-Z])(\)|\s*:|\.)\s*")
_CELL = re.compile(r"\s*[A-D]\s*:")


def without_letter(cell: str) -> str:
    """Return the text of an option of PMC-VQA, without blanks around it and whatever letter stands before it.

    Example:
        >>> without_letter(" C: T: thyroid gland "), without_letter("None")
        ('T: thyroid gland', 'None')
    """
    return _CELL.sub("", cell, count=1).strip() if _CELL.match(cell) else cell.strip()


def relettered(line: str, option: str, letter: str) -> str:
    """Return the line of an option with another letter before its text; a line without any stays as it is.

    Example:
        >>> relettered(" A: Green ", "Green", "B"), relettered("(A) x", "x", "C"), relettered("E. coli", "E. coli", "B")
        (' B: Green ', '(C) x', 'E. coli')
    """
    found = _BEFORE.match(line)
    if found is None or line[found.end() :].strip() != option.strip():
        return line
    return f"{found[1]}{letter}{line[found.end(2) :]}"
