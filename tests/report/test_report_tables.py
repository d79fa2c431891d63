"""Tables of scores in Markdown, in LaTeX and on the terminal; the report's section on thinking and repeats."""

import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from medtasks.data.dataset_lookup import provenance
from medtasks.data.document_store import load_documents
from medtasks.families.family import ReadAnswer
from medtasks.report import task_tables, wording
from medtasks.report.collecting import collect_run
from medtasks.report.page import write_page
from medtasks.report.repeats import collect_repeats
from medtasks.report.report_model import PublishedScore, report_as_dict
from medtasks.report.tables import latex_text, number_table, terminal
from medtasks.runs.run import open_run
from medtasks.runs.run_notes import moment
from medtasks.scores.score_model import AuditItem, Baseline

from ..tables import each_row
from .made_up_report import NAN, SECRET, full_report, latex, markdown, nasty, share

REPORT = full_report()
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
SPECIAL = r"a_b\c{d}$e%f&g#h^i~j<k>l|m`n\"o [x] *y* -- é ł ą 肺 α − \end{table} /path/to/x"
DOCUMENT = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\input{tables}\end{document}"


def markdown_tables(text):
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    lines = [
        [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()] for block in blocks
    ]
    return [[[cell.strip() for cell in line] for line in table] for table in lines]


def latex_tables(text):
    return re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.DOTALL)


def check_latex(text):
    """Environments and braces are balanced, every special character is escaped, every row has all its cells."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert text.isascii()
    opened, depth = [], 0
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    bare = re.sub(
        r"\\label\{[^{}]*\}|\\ifdim.*?\\fi|\\[A-Za-z]+|\\.|(?<=\{)%$",
        "",
        text,
        flags=re.MULTILINE,
    )
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"[#~\\]|%", re.sub("% no wider.*", "", bare))
    assert not re.search(r"[_^]", re.sub(r"\$[^$]*\$", "", bare))
    assert bare.count("$") % 2 == 0
    for table in latex_tables(text):
        (columns,) = re.findall(r"\\begin\{tabular\}\{((?:[lr]|p\{[^{}]*\})+)\}", table)
        expected = len(re.findall(r"[lr]|p\{[^{}]*\}", columns))
        for row in re.findall(r"^    (?!\\multicolumn)(.*) \\\\$", table, re.MULTILINE):
            assert len(re.findall(r"(?<!\\)&", row)) == expected - 1, row
            assert not row.startswith(("[", "*"))


def test_tables_are_whole_in_markdown_and_latex():
    check_latex(latex(REPORT))
    tables = markdown_tables(markdown(REPORT))
    assert len(tables) > 20
    for table in tables:
        assert {len(row) for row in table} == {len(table[0])}
        assert all(re.fullmatch(":--|--:", cell) for cell in table[1])


@settings(max_examples=60)
@given(TEXT)
def test_no_name_breaks_a_table(text):
    report = nasty(text)
    check_latex(latex(report))
    for table in markdown_tables(markdown(report)):
        assert {len(row) for row in table} == {len(table[0])}


@each_row(
    "text, expected",
    [
        ("50 % & more_", r"50 \% \& more\_"),
        ("--limit", "-{}-limit"),
        ("−1.0 – 2", "$-$1.0 -- 2"),
        ("Wałęsa Müller", r"Wa{\l}esa M\"{u}ller"),
        ("肺\x00\u200b", r"\texttt{U+80BA}"),
        ("a\nb\tc", "a b c"),
        ("a1 Z_9", r"a1 Z\_9"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
    ],
)
def test_text_becomes_latex(text, expected):
    assert latex_text(text) == expected
    # Lines break in long names only.
    assert latex_text(
        "a_short/name and one of_many_words_and/ten_folders/in_it", breakable=True
    ) == (
        r"a\_short/name and one of\_\allowbreak{}many\_\allowbreak{}words\_\allowbreak{}and/\allowbreak{}"
        r"ten\_\allowbreak{}folders/\allowbreak{}in\_\allowbreak{}it"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX on this machine")
@pytest.mark.parametrize("report", [REPORT, nasty(SPECIAL)], ids=["full", "nasty"])
def test_latex_compiles(report, tmp_path):
    (tmp_path / "tables.tex").write_text(latex(report))
    (tmp_path / "paper.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def row(text, *starts):
    """The one row of all Markdown tables that starts with some cells."""
    (found,) = [
        row
        for table in markdown_tables(text)
        for row in table
        if tuple(row[: len(starts)]) == starts
    ]
    return found


@pytest.fixture
def text():
    return markdown(replace(REPORT, tasks=REPORT.tasks[:1]))


def test_each_score_has_its_interval(text):
    scores = [r"12.5% \[7.5 to 17.5\]", r"22.5% \[17.5 to 27.5\]"]
    assert row(text, "`set_accuracy`", scores[0]) == ["`set_accuracy`", *scores]


def test_counts_stand_in_the_table_of_scores(text):
    assert row(text, "questions") == ["questions", "352 of 352", "352 of 352"]
    assert row(text, "`incomplete_pairs`") == ["`incomplete_pairs`", "3", "3"]


def test_scores_are_compared_with_baselines(text):
    assert row(text, "`confusion`", "`robust`")[3:] == ["100.0%", "50.0%"]


def test_gains_over_variants_are_tested(text):
    assert row(text, "swapped", "`robust`")[3:] == [
        *("352", "12.5%", "0.0%", r"+12.5 pts \[−2.0 to +20.0\]"),
        *("0.0033", "0.0067"),
    ]


def test_each_group_has_a_score_of_each_rule(text):
    assert (
        row(text, "Head and Neck", "60", r"10.0% \[5.0 to 15.0\]")[4]
        == r"20.0% \[15.0 to 25.0\]"
    )


def test_outcomes_of_pairs_are_counted(text):
    assert row(text, "Both answered A") == ["Both answered A", "80", "80"]
    assert "Of 3 more pairs only one image was asked; they are in no score of pairs." in text


def test_the_summary_names_baseline_next_to_gain(text):
    gain = r"+12.5 pts \[−2.0 to +20.0\] (over swapped)"
    assert row(text, "`mediconfusion`", "`robust`")[5:7] == ["25.0% (guessing)", gain]


def test_a_whole_run_on_whole_data_has_no_warning(text):
    assert not re.search("SAMPLE|INCOMPLETE|PARTIAL", text.partition("## mediconfusion")[2])


def test_versions_of_packages_are_listed(text):
    assert row(text, "versions")[1].startswith("medtasks 0.8.0, lmms_eval 0.7.3")


def test_each_rule_is_described(text):
    assert "reference: reference_rule v1. Reads the letter of an option." in text


def test_each_caption_names_what_it_shows(text):
    captions = re.findall(r"\*\*Table \d+.\*\* (.*)", text)
    data = "Data: mediconfusion, fingerprint 0123456789ab."
    assert (
        captions[2]
        == f"Scores. mediconfusion, {REPORT.title}. Pairs of pictures with one question. {data}"
    )
    assert len(captions) > 4
    assert all(f" mediconfusion, {REPORT.title}." in caption for caption in captions[2:-2])
    assert REPORT.model not in "".join(captions)


def test_published_results_are_below_ours_with_their_remarks():
    text = markdown(REPORT)
    radfm = row(text, "RadFM", "0.57%<sup>4</sup>")
    assert radfm[2] == "35.90%<sup>5</sup>"
    assert (
        "- <sup>5</sup> Misprint for 35.80, which is 126 of 352 answers; no count gives 35.90."
        in text
    )
    assert row(text, "GPT-4o", "18.75%") == ["GPT-4o", "18.75%", "56.25%", "75.00%"]
    assert (
        "Published results (Sepehri et al., MediConfusion, arXiv 2409.15477, Table 1) and this run."
        in text
    )
    head = ["Model", "`bleu_1`", "`radcliq_v1_multimedeval`"]
    (table,) = [table for table in markdown_tables(text) if table[0] == head]
    assert table[3] == ["This run, reference", r"12.7% \[10.7 to 14.7\]", "1.994"]
    reported = ["MAIRA-1 (reported)", "Med-PaLM M (reported)", "RadFM (reported)"]
    assert [line[0] for line in table[4:]] == [*reported, "RadFM", "LLaVA-Med"]
    assert table[4][1:] == ["39.2%<sup>1</sup>", "3.100<sup>5</sup>"]
    assert "RadCliQ-v0" in text
    # Two tables that print a model have a row each.
    printed = [(0.232, "23.2", "Theirs, Table 2"), (0.216, "21.6", "Others, Table 1")]
    published = tuple(PublishedScore("One Model", "set_accuracy", *score) for score in printed)
    text = markdown(replace(REPORT, tasks=(replace(REPORT.tasks[0], published=published),)))
    rows = [line for table in markdown_tables(text) for line in table]
    assert [line[1] for line in rows if line[0] == "One Model"] == ["23.2%", "21.6%"]


def test_numbers_in_words():
    nan = float("nan")
    assert [
        *(
            wording.number(0.2955),
            wording.number(12.3456, share=False),
            wording.number(3.0, share=False),
        ),
        *(wording.number(nan), wording.number(1e15, share=False), wording.number(-0.0004)),
        *(
            wording.interval(0.352, 0.526),
            wording.interval(-0.02, 0.0, share=False),
            wording.interval(nan, nan),
        ),
        *(wording.points(0.0438), wording.points(0.25, share=False)),
        *(wording.with_sign(0.0438), wording.with_sign(-0.02), wording.with_sign(0.0)),
        *(
            wording.difference_interval(-0.012, 0.1),
            wording.p_statement(0.03126),
            wording.p_statement(1e-9),
        ),
        *(wording.part_of(1200, 4800), wording.part_of(0, 0), wording.quantity(1, "pair")),
        *(
            wording.encode_name("my task/1"),
            wording.encode_name("a task", end="-"),
            wording.anchor("my task/1"),
        ),
        *(moment("2026-03-01T10:15:00.25+08:00"), moment("20260301_101500"), moment("once")),
        *(wording.with_error(0.3125, 0.0833, True), wording.with_error(12, nan, False)),
    ] == [
        *("29.6%", "12.346", "3", "n/a", "1.000e+15", "0.0%"),
        *(
            "35.2% to 52.6%",
            "−0.020 to 0.000",
            "n/a",
            "4.4 pts",
            "0.250",
            "+4.4 pts",
            "−2.0 pts",
            "0.0 pts",
        ),
        *("−1.2 to +10.0 pts", "p = 0.0313", "p < 0.0001", "1,200 (25.0%)", "0", "1 pair"),
        *("my-20task-2f1", "a-20-task", "task-my-20task-2f1"),
        *("2026-03-01 02:15:00 UTC", "20260301_101500", "once", "31.3% ± 8.3%", "12"),
    ]


def test_what_is_not_defined_or_failed_is_said():
    text = markdown(REPORT)
    assert row(text, "`acc_box_level`") == ["`acc_box_level`", "n/a", "n/a", "n/a"]
    assert re.search(r"\\texttt\{acc\\_box\\_level\} & -- & -- & -- \\\\", latex(REPORT))
    assert "nan" not in (text + latex(REPORT)).lower()
    assert "acc_box_level under robust has no value: no question of this level." in text
    assert "There is no blind variant of this run; run it with: medtasks run --sanity." in text
    assert row(text, "`medheval_visual_mm`")[1] == "Failed: the dataset is not prepared."
    assert row(text, "command")[1] == "lmms_eval --model x --tasks a,b"
    assert "- The run was stopped once and went on." in text
    assert any(task.withheld for task in REPORT.tasks)
    assert SECRET not in text + latex(REPORT)
    assert "Credentialed data: only scores are shown." in text


@pytest.fixture
def alike():
    """Task of three rules with the same scores, of which the first and the last read alike."""
    rules = [
        replace(REPORT.tasks[0].rules[0], name=name, rule=f"{name} v1")
        for name in ("a", "b", "c")
    ]
    items = []
    for number in range(4):
        even = number % 2 == 0
        rights = {"a": even, "b": not even, "c": even}
        answers = {name: ReadAnswer("A", "ok", right) for name, right in rights.items()}
        items.append(AuditItem(f"q{number}", f"q{number}", answers=answers))
    scores = {rule: {"set_accuracy": 0.25} for rule in "abc"}
    baselines = (Baseline("always A", "", scores),)
    return replace(
        REPORT.tasks[0], rules=tuple(rules), items=tuple(items), baselines=baselines, gains=()
    )


def test_readings_with_the_same_values_of_all_samples_are_one(alike):
    assert [rule.title for rule in alike.distinct_rules] == ["a, c", "b"]


def test_readings_that_are_alike_are_shown_once_in_tables(alike):
    task = alike
    text = markdown(replace(REPORT, tasks=(task,)))
    tables = markdown_tables(text)
    assert [
        table[0][1:] for table in tables if table[0][0] == "Metric" and len(table[0]) == 3
    ] == [["`a, c`", "`b`"]]
    assert [line[1] for table in tables for line in table if line[0] == "`mediconfusion`"][
        -2:
    ] == [
        "`a, c`",
        "`b`",
    ]
    assert row(text, "`set_accuracy`", "`a, c`")[3] == "25.0%"
    first_cells = [line[0] for table in tables for line in table]
    assert first_cells.count("This run, a, c") == 2, (
        "next to published results of the task and by area"
    )
    assert row(text, "Both right") == ["Both right", "22", "22"]
    assert re.search(
        r"\| categories \| Questions \| `a, c` \| a, c: gap to all others \| `b` \|", text
    )
    assert "c: c v1." in text, "the rule is described all the same"


def test_readings_that_are_alike_are_shown_once_on_the_page(alike, tmp_path):
    write_page(replace(REPORT, tasks=(alike,)), tmp_path / "page.html")

    found = (
        (tmp_path / "page.html")
        .read_text()
        .partition("Could the replies be read?")[2]
        .partition("</table>")[0]
    )
    assert re.findall(r'class="number">([abc, ]+)</th>', found) == ["a, c", "b"]


def test_the_json_file_has_every_reading(alike):
    assert [
        rule["name"]
        for rule in report_as_dict(replace(REPORT, tasks=(alike,)))["tasks"][0]["rules"]
    ] == [*"abc"]


def test_readings_with_other_baselines_are_shown_apart(alike):
    baselines = (Baseline("always A", "", {"a": {"set_accuracy": 0.25}}),)

    assert [rule.title for rule in replace(alike, baselines=baselines).distinct_rules] == [
        "a",
        "b",
        "c",
    ]


def test_readings_without_samples_are_shown_apart(alike):
    assert [rule.title for rule in replace(alike, items=()).distinct_rules] == [
        "a",
        "b",
        "c",
    ], "they may differ"


def test_metrics_without_a_value_for_one_reason_are_one_sentence():
    scores = [
        share("bleu_1", 0.25),
        *(share(name, NAN, NAN) for name in ("green", "radgraph", "ratescore", "cider")),
    ]
    failures = {
        **dict.fromkeys(("green", "radgraph", "ratescore"), "not computed in the run"),
        "cider": "no words",
    }
    rule = replace(
        REPORT.tasks[0].rules[0], name="reference", scores=tuple(scores), failures=failures
    )
    task = replace(REPORT.tasks[2], rules=(rule,), items=())
    table, *_ = task_tables.task_tables(task)
    assert [line[0].text for line in table.rows] == ["questions", "bleu_1", "cider"]
    assert (
        "green, radgraph, ratescore under reference has no value: not computed in the run."
        in table.notes
    )
    # What another rule has a value of stays a row.
    fixed = replace(rule, name="fixed", scores=(*scores[:2], share("radgraph", 0.5), *scores[3:]), failures={
        name: why for name, why in failures.items() if name != "radgraph"
    })  # fmt: skip
    table, *_ = task_tables.task_tables(replace(task, rules=(rule, fixed)))
    assert [line[0].text for line in table.rows] == ["questions", "bleu_1", "radgraph", "cider"]


def test_data_of_unknown_size_are_marked_in_tables_and_on_the_page(tmp_path):
    task = replace(REPORT.tasks[0], dataset="medevalkit_mimic_cxr_report")
    report = replace(REPORT, tasks=(task,))
    warning = "COUNT UNKNOWN: no source states how many samples the whole set has"
    assert row(markdown(report), f"**{task.name}: {warning}**")
    write_page(report, tmp_path / "page.html")
    assert warning in (tmp_path / "page.html").read_text()
    parts = (replace(task, sample_data=True), replace(task, complete_data=False))
    assert [wording.warnings(part)[0].partition(":")[0] for part in parts] == [
        "SAMPLE DATA",
        "INCOMPLETE DATA",
    ]


@each_row(
    "task, warning",
    [
        ("mediconfusion_gd", "SAMPLE DATA: synthetic images, no score of a model"),
        ("gmai_mmbench_val", "PARTIAL RUN: 1,000 of 4,550 questions answered"),
        (
            "multimedeval_mimic_cxr_report",
            "INCOMPLETE DATA: not comparable with published scores",
        ),
    ],
)
def test_every_table_of_a_doubtful_task_says_so_in_its_first_row(task, warning):
    section = re.search(rf"^## {task}\n(.*?)^## ", markdown(REPORT), re.MULTILINE | re.DOTALL)
    tables = markdown_tables(section.group(1))
    assert tables
    assert all(table[2][0] == f"**{warning}**" for table in tables)
    assert row(markdown(REPORT), f"**{task}: {warning}**")
    of_task = [
        table for table in latex_tables(latex(REPORT)) if f"\\label{{tab:{task}." in table
    ]
    assert len(of_task) >= len(tables)
    for table in of_task:
        assert re.search(
            rf"\\midrule\n +\\multicolumn\{{\d+\}}\{{l\}}\{{\\textbf\{{{warning}\}}\}}", table
        )


def test_labels_of_tables_are_unique():
    tables = latex_tables(latex(REPORT))
    labels = [re.search(r"\\label\{(.*?)\}", table).group(1) for table in tables]
    assert len(set(labels)) == len(labels)


def test_long_tables_are_split():
    tables = latex_tables(latex(REPORT))
    parts = [table for table in tables if "tab:gmai_mmbench_val.published" in table]
    assert len(parts) == 2
    assert "Part 2 of 2." in parts[1]
    assert (
        sum(
            len(re.findall(r"superscript\{1\} & .*superscript\{3\} \\\\", table))
            for table in parts
        )
        == 50
    )
    assert parts[0].count("\\midrule") == parts[1].count("\\midrule") + 1
    assert max(table.count(" \\\\\n") for table in tables) <= 42


def test_published_results_of_groups_follow_those_of_the_run():
    text = markdown(REPORT)
    before, after = text.split("set_accuracy by categories.", 1)
    assert "arXiv 2409.15477, Table 3" not in before
    shown = after.split("confusion by categories.", 1)[0]
    assert (
        "Published set_accuracy by categories (Sepehri et al., MediConfusion, arXiv 2409.15477, Table 3)"
        in shown
    )
    table = markdown_tables(shown)[-1]
    assert table[0][:4] == ["Model", "Cerebral", "Vascular", "Head and Neck"]
    lines = {line[0]: line[1:] for line in table[2:]}
    assert lines["This run, reference"][0] == r"0.0% \[0.0 to 5.0\]"
    assert lines["This run, reference"][1] == "n/a"
    assert lines["GPT-4o"] == [
        "15.19%",
        "34.25%",
        "8.96%",
        "15.69%",
        "14.29%",
        "19.23%",
        "16.28%",
        "35.00%",
        "14.29%",
    ]
    assert lines["Med-Flamingo"][1].startswith("10.95%")
    assert "Misprint for 10.96" in shown
    assert len(lines) == 14
    check_latex(latex(REPORT))


def test_notes_are_no_markup_and_names_are_code():
    notes = {
        "# no heading": r"\# no heading",
        "1. no list": r"1\. no list",
        "- no list": r"\- no list",
        "1 run": "1 run",
    }
    names = {
        "a_b": "`a_b`",
        "a|b": r"`a\|b`",
        "a`b": "``a`b``",
        "`": "`` ` ``",
        "a\nb": "`a b`",
    }
    why = "<b> *a* _b_ c_d [e](f) &lt; g|h ~i~ $j$"
    text = markdown(replace(REPORT, notes=tuple(notes), missing=dict.fromkeys(names, why)))
    assert [shown for shown in notes.values() if f"\n- {shown}\n" not in text] == []
    assert [shown for shown in names.values() if shown not in text] == []
    assert text.count(
        r"| &lt;b&gt; \*a\* \_b\_ c_d \[e\](f) &amp;lt; g\|h \~i\~ \$j\$ |"
    ) == len(names)


def test_a_report_without_results_says_why():
    text = markdown(replace(REPORT, tasks=()))
    assert "dataset is not prepared" in text
    assert "## Summary" not in text
    check_latex(latex(replace(REPORT, tasks=())))
    task = replace(REPORT.tasks[-1], rules=(), baselines=(), published=())
    report = replace(REPORT, tasks=(task,))
    assert row(markdown(report), "questions") == ["questions", "1,000 of 4,550"]
    check_latex(latex(report))
    # A score without an interval stands alone.
    rule = replace(
        REPORT.tasks[-1].rules[0], scores=(replace(share("accuracy", 0.25), low=NAN),)
    )
    report = replace(REPORT, tasks=(replace(task, rules=(rule,)),))
    assert row(markdown(report), "`accuracy`") == ["`accuracy`", "25.0%"]


def printed(table, width=60):
    stream = io.StringIO()
    Console(width=width, file=stream).print(terminal(table))
    return stream.getvalue().splitlines()


def test_long_names_are_not_cut():
    rules = ["reference", "reference_release", "reference_fixed", "robust"]
    lines = printed(
        number_table("", ["score", *rules], [["accuracy", *["100.0% ± 0.0%"] * len(rules)]])
    )
    heading = [line.split("┃")[1:-1] for line in lines if line[:1] == "┃"]
    assert ["".join(part).replace(" ", "") for part in zip(*heading, strict=True)] == [
        "score",
        *rules,
    ]


def test_a_line_separates_rows():
    rows = [("a", "1"), ("b", "2"), ("sum", "3")]
    assert [
        line[:1] for line in printed(number_table("", ("name", "number"), rows, split=2))
    ] == list("┏┃┡││├│└")


def test_no_name_is_markup_or_an_order():
    lines = printed(
        number_table(
            "[bold]title[/] \x1b[2J", ["[i]name[/i]", "value"], [["[red]x[/] \x9b", "1"]]
        )
    )
    text = "\n".join(lines)
    assert "[bold]title[/] ?[2J" in text
    assert "[i]name[/i]" in text
    assert "[red]x[/] ?" in text


BASE, THINK = "mediconfusion", "mediconfusion_think"
CUT = 4  # questions whose reasoning never ends


@pytest.fixture(autouse=True)
def _sample(sample_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))


def write(
    folder, *, tokens=lambda row: 4096 if row < CUT else row, wrong=0, tasks=(BASE, THINK)
):
    """Write a run that is right when it thinks, but for the first replies, and says A when it does not."""
    folder.mkdir(parents=True)
    documents = load_documents(BASE)
    results = {
        "results": {},
        "configs": {},
        "n-samples": {},
        "config": {"model": "made_up", "model_args": ""},
    }
    for task in tasks:
        lines = []
        for row, document in enumerate(documents):
            answer = (
                document["answer"] if row >= wrong else {"A": "B", "B": "A"}[document["answer"]]
            )
            words = "word " * (10 * row + 1)
            said = (
                f"<think>{words}"
                if row < CUT
                else f"<think>{words}</think><answer>{answer}</answer>"
            )
            line = {
                "doc_id": row,
                "resps": [said if task == THINK else "A"],
                "filtered_resps": ["A"],
            }
            lines.append(
                line | ({"token_counts": [{"output_tokens": tokens(row)}]} if tokens else {})
            )
        (folder / f"20260102_030405_samples_{task}.jsonl").write_text(
            "".join(f"{json.dumps(one)}\n" for one in lines)
        )
        results["results"][task] = {"alias": task, "failed_samples,robust": 0}
        config = {
            "task": task,
            "metadata": {"data": provenance(BASE)},
            "generation_kwargs": {"max_new_tokens": 4096},
        }
        results["configs"][task] = config
        results["n-samples"][task] = {"original": len(lines), "effective": len(lines)}
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))
    return folder


def thinking(report):
    (task,) = [one for one in report.tasks if one.name == THINK]
    return task.thinking


@pytest.fixture
def thinking_report(tmp_path):
    return collect_run(open_run(write(tmp_path / "run")))


def test_thinking_is_compared_with_the_direct_form(thinking_report):
    found = thinking(thinking_report)
    gains = {gain.metric: gain for gain in found.gains}
    individual = gains["individual_accuracy"]
    assert (individual.rule, individual.samples, individual.variant, individual.task) == (
        "robust",
        32,
        "direct",
        BASE,
    )
    assert (individual.score, individual.variant_score) == ((32 - CUT) / 32, 0.5)
    assert individual.difference == individual.score - individual.variant_score
    assert individual.low < individual.difference < individual.high
    assert gains["set_accuracy"].difference == (16 - CUT / 2) / 16


def test_truncated_replies_are_counted(thinking_report):
    found = thinking(thinking_report)

    assert found.truncated.value == CUT / 32
    assert found.truncated.low < CUT / 32 < found.truncated.high
    assert (found.unit, found.limit, found.at_limit, found.most) == ("tokens", 4096, CUT, 4096)


def test_scores_are_shown_by_length_of_the_reply(thinking_report):
    found = thinking(thinking_report)

    assert [one.questions for one in found.bins] == [8, 8, 8, 8]
    # The last holds the truncated ones.
    assert [one.score.value for one in found.bins] == [1, 1, 1, 0.5]


def test_the_direct_form_has_no_section_on_thinking(thinking_report):
    assert all(one.thinking is None for one in thinking_report.tasks if one.name == BASE)


def test_replies_of_equal_length_are_one_bin(tmp_path):
    (part,) = thinking(
        collect_run(open_run(write(tmp_path / "equal", tokens=lambda _: 7)))
    ).bins
    assert (part.least, part.most, part.questions) == (7, 7, 32)


def test_words_are_counted_where_no_tokens_are_recorded(tmp_path):
    report = collect_run(open_run(write(tmp_path / "words", tokens=None, tasks=(THINK,))))
    found = thinking(report)
    assert (found.unit, found.at_limit, found.gains) == ("words", None, ())
    assert (found.bins[0].least, found.bins[-1].most) == (1, 311)


def test_a_page_without_the_direct_form_says_so(tmp_path):
    report = collect_run(open_run(write(tmp_path / "words", tasks=(THINK,))))

    write_page(report, tmp_path / "page.html")
    assert (
        f"The direct form, {BASE}, was not run beside it."
        in (tmp_path / "page.html").read_text()
    )


@pytest.fixture
def repeated(tmp_path):
    for number, wrong in ((1, 8), (2, 16), (3, 32)):
        write(tmp_path / f"repeat_{number}", wrong=wrong)
    return collect_repeats(tmp_path)


def test_the_json_file_has_the_repeats(repeated):
    assert "repeat_1" in repeated.notes[0]
    written = json.loads(json.dumps(report_as_dict(repeated), allow_nan=False))
    assert (
        next(task for task in written["tasks"] if task["name"] == THINK)["repeats"]["repeats"]
        == 3
    )


def test_the_page_shows_thinking_next_to_repeats(repeated, tmp_path):
    page = tmp_path / "page.html"
    write_page(repeated, page)

    text = page.read_text()
    assert 'href="#thinking"' in text
    assert "Mean of repeats" in text
    assert "4 of 32 used up the 4,096 new tokens" in text


def test_tables_show_thinking_next_to_repeats(repeated):
    tables = markdown(repeated)

    assert "3 repeats with other seeds." in tables
    assert "Thinking against the direct form (mediconfusion)" in tables
    assert "3 repeats with other seeds." in latex(repeated)


def test_a_page_without_thinking_has_no_section_on_it(repeated, tmp_path):
    page = tmp_path / "page.html"
    without = replace(
        repeated,
        tasks=tuple(replace(one, thinking=None, repeats=None) for one in repeated.tasks),
    )
    write_page(without, page)
    assert 'id="thinking"' not in page.read_text()
