"""Numbers of one run as the terminal, Markdown, LaTeX and the page print them."""

import json
import re

import pytest

from medtasks.data.document_store import load_documents

from ..audit.report.page_structure import Structure
from ..tables import each_row
from .conftest import rows_of

METRICS = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")
NUMBER = r"[−+]?\d[\d.,]*"


@pytest.fixture
def runs(sample, tmp_path):
    paths = []
    for name, wrong in (("a", 3), ("b", 2)):
        lines = []
        for row, document in enumerate(load_documents("mediconfusion")):
            reply = "neither" if row == 5 else "A" if row % wrong == 0 else document["answer"]
            lines.append(json.dumps({"doc_id": document["doc_id"], "reply": reply}))
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("\n".join(lines))
    return paths


@pytest.fixture
def reported(medtasks, runs, tmp_path):
    """Text of a report in each format, without markup."""
    html, markdown, latex = (tmp_path / f"found.{ending}" for ending in ("html", "md", "tex"))
    files = ("--html", html, "--markdown", markdown, "--latex", latex)
    assert medtasks("report", runs[0], "--task", "mediconfusion", "--against", runs[1], *files).code == 0
    source = latex.read_text().replace("$-$", "−").replace(r"\texttt", "")
    return {
        "html": Structure(html.read_text()).text,
        "markdown": re.sub(r"[`\\|]", "", markdown.read_text()),
        "latex": re.sub(r"[\\{}&]", "", source),
    }


def numbers_after(text, *words):
    """Numbers after the first place where some words follow each other, the interval in brackets or not."""
    found = re.search(r"\s.*?\s".join(map(re.escape, words)) + r"\s+(.*)", text, re.DOTALL)
    return re.findall(rf"{NUMBER}%?", found[1][:400])


@pytest.fixture
def scored(medtasks, runs):
    return rows_of(medtasks("score", "mediconfusion", runs[0]).out, "mediconfusion: 32")


@each_row("metric", METRICS)
def test_scores_have_the_same_digits_everywhere(scored, reported, metric):
    printed = scored[metric][0]
    value, error = re.findall(rf"{NUMBER}%", printed)
    tables = {
        name: numbers_after(text[text.index("All metrics" if name == "html" else "questions 32 of 32") :], metric)
        for name, text in ((name, " ".join(text.split())) for name, text in reported.items())
    }
    assert {name: numbers[0] for name, numbers in tables.items()} == dict.fromkeys(tables, value)
    ends = {name: [end.rstrip("%") for end in numbers[1:3]] for name, numbers in tables.items()}
    assert ends["html"] == ends["markdown"] == ends["latex"]
    assert tables["html"][3] == error.rstrip("%")


@each_row("metric", METRICS[:2])
def test_comparisons_have_the_same_digits_everywhere(medtasks, runs, reported, metric):
    found = rows_of(medtasks("compare", "mediconfusion", *runs).out, f"\n{metric}\n")
    ends = found["95 % interval"][0].removesuffix(" pts").split(" to ")
    expected = [found["A"][0], found["B"][0], found["B - A"][0].removesuffix(" pts"), *ends]
    for text in (" ".join(text.split()) for text in reported.values()):
        start = text.index("Compared with other runs" if "Compared with" in text else "compared with this run")
        numbers = numbers_after(text[start:], metric)
        first = numbers.index(expected[0])
        assert numbers[first : first + 5] == expected
    verdict = rows_of(medtasks("parity", "mediconfusion", *runs).out, f"\n{metric}\n")
    assert {row: verdict[row][0] for row in found if row != "p, Holm"} == {
        row: found[row][0] for row in found if row != "p, Holm"
    }
