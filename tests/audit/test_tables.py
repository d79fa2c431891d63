"""Tables of scores on the terminal; Markdown and LaTeX are tested with those of a report."""

import io

from rich.console import Console

from medtasks.audit.tables import number_table, terminal


def printed(table, width=60):
    stream = io.StringIO()
    Console(width=width, file=stream).print(terminal(table))
    return stream.getvalue().splitlines()


def test_long_names_are_not_cut_a_line_separates_rows_and_no_name_is_markup_or_an_order():
    rules = ["reference", "reference_release", "reference_fixed", "robust"]
    lines = printed(number_table("", ["score", *rules], [["accuracy", *["100.0% ± 0.0%"] * len(rules)]]))
    heading = [line.split("┃")[1:-1] for line in lines if line[:1] == "┃"]
    assert ["".join(part).replace(" ", "") for part in zip(*heading, strict=True)] == ["score", *rules]
    rows = [("a", "1"), ("b", "2"), ("sum", "3")]
    assert [line[:1] for line in printed(number_table("", ("name", "number"), rows, split=2))] == list("┏┃┡││├│└")
    lines = printed(number_table("[bold]title[/] \x1b[2J", ["[i]name[/i]", "value"], [["[red]x[/] \x9b", "1"]]))
    text = "\n".join(lines)
    assert "[bold]title[/] ?[2J" in text
    assert "[i]name[/i]" in text
    assert "[red]x[/] ?" in text
