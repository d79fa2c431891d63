"""The report's section on thinking and repeats: gain, truncated replies, lengths, and where each stands."""

import json
from dataclasses import replace

import pytest

from medtasks.audit.repeats import collected
from medtasks.audit.report.collecting import collect_run
from medtasks.audit.report.contents import report_as_dict
from medtasks.audit.report.page import write_page
from medtasks.data.dataset_lookup import provenance
from medtasks.data.document_store import load_documents
from medtasks.runs.run import read_run

from .made_up_report import latex, markdown

BASE, THINK = "mediconfusion", "mediconfusion_think"
CUT = 4  # questions whose reasoning never ends


@pytest.fixture(autouse=True)
def _sample(sample_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))


def write(folder, *, tokens=lambda row: 4096 if row < CUT else row, wrong=0, tasks=(BASE, THINK)):
    """Write a run that is right when it thinks, but for the first replies, and says A when it does not."""
    folder.mkdir(parents=True)
    documents = load_documents(BASE)
    results = {"results": {}, "configs": {}, "n-samples": {}, "config": {"model": "made_up", "model_args": ""}}
    for task in tasks:
        lines = []
        for row, document in enumerate(documents):
            answer = document["answer"] if row >= wrong else {"A": "B", "B": "A"}[document["answer"]]
            words = "word " * (10 * row + 1)
            said = f"<think>{words}" if row < CUT else f"<think>{words}</think><answer>{answer}</answer>"
            line = {"doc_id": row, "resps": [said if task == THINK else "A"], "filtered_resps": ["A"]}
            lines.append(line | ({"token_counts": [{"output_tokens": tokens(row)}]} if tokens else {}))
        (folder / f"20260102_030405_samples_{task}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        results["results"][task] = {"alias": task, "failed_samples,robust": 0}
        config = {"task": task, "metadata": {"data": provenance(BASE)}, "generation_kwargs": {"max_new_tokens": 4096}}
        results["configs"][task] = config
        results["n-samples"][task] = {"original": len(lines), "effective": len(lines)}
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))
    return folder


def thinking(report):
    (task,) = [one for one in report.tasks if one.name == THINK]
    return task.thinking


def test_gain_truncation_and_tokens(tmp_path):
    report = collect_run(read_run(write(tmp_path / "run")))
    found = thinking(report)
    gains = {gain.metric: gain for gain in found.gains}
    individual = gains["individual_accuracy"]
    assert (individual.rule, individual.samples, individual.variant, individual.task) == ("robust", 32, "direct", BASE)
    assert (individual.score, individual.variant_score) == ((32 - CUT) / 32, 0.5)
    assert individual.difference == individual.score - individual.variant_score
    assert individual.low < individual.difference < individual.high
    assert gains["set_accuracy"].difference == (16 - CUT / 2) / 16
    assert found.truncated.value == CUT / 32
    assert found.truncated.low < CUT / 32 < found.truncated.high
    assert (found.unit, found.limit, found.at_limit, found.most) == ("tokens", 4096, CUT, 4096)
    assert [one.questions for one in found.bins] == [8, 8, 8, 8]
    assert [one.score.value for one in found.bins] == [1, 1, 1, 0.5]  # the last holds the truncated ones
    assert all(one.thinking is None for one in report.tasks if one.name == BASE)


def test_without_tokens_words_are_counted_and_without_the_direct_form_there_is_no_gain(tmp_path):
    report = collect_run(read_run(write(tmp_path / "run", tokens=None, tasks=(THINK,))))
    found = thinking(report)
    assert (found.unit, found.at_limit, found.gains) == ("words", None, ())
    assert (found.bins[0].least, found.bins[-1].most) == (1, 311)
    write_page(report, tmp_path / "page.html")
    assert f"The direct form, {BASE}, was not run beside it." in (tmp_path / "page.html").read_text()


def test_equal_lengths_are_in_one_part(tmp_path):
    (part,) = thinking(collect_run(read_run(write(tmp_path / "run", tokens=lambda _: 7)))).bins
    assert (part.least, part.most, part.questions) == (7, 7, 32)


def test_page_and_tables_show_them(tmp_path):
    for number, wrong in ((1, 8), (2, 16), (3, 32)):
        write(tmp_path / f"repeat_{number}", wrong=wrong)
    repeated = collected(tmp_path)
    assert "repeat_1" in repeated.notes[0]
    written = json.loads(json.dumps(report_as_dict(repeated), allow_nan=False))
    assert next(task for task in written["tasks"] if task["name"] == THINK)["repeats"]["repeats"] == 3
    page = tmp_path / "page.html"
    write_page(repeated, page)
    text = page.read_text()
    assert 'href="#thinking"' in text
    assert "Mean of repeats" in text
    assert "4 of 32 used up the 4,096 new tokens" in text
    tables = markdown(repeated)
    assert "3 repeats with other seeds." in tables
    assert "Thinking against the direct form (mediconfusion)" in tables
    assert "3 repeats with other seeds." in latex(repeated)
    without = replace(repeated, tasks=tuple(replace(one, thinking=None, repeats=None) for one in repeated.tasks))
    write_page(without, page)
    assert 'id="thinking"' not in page.read_text()
