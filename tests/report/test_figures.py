import re
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PathCollection
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.report import figure_style
from medtasks.report.figure_style import LOOKS, RC_PARAMS, rule_looks
from medtasks.report.figures import figures

from .made_up_report import NAN, SECRET, full_report, groups, nasty, share

SVG = "{http://www.w3.org/2000/svg}"
KEYS = [
    "summary",
    "mediconfusion/groups/categories",
    "mediconfusion/pairs",
    "mediconfusion/gains",
    "mediconfusion_gd/groups/categories",
    "mediconfusion_gd/pairs",
    "mediconfusion_gd/reliability/reference",
    "mediconfusion_gd/coverage/reference",
    "gmai_mmbench_val/groups/department",
    "gmai_mmbench_val/groups/modality",
]
REPORT = full_report()
TASKS = {task.name: task for task in REPORT.tasks}
MARKERS = {look.marker for look in LOOKS}
SIZED = re.compile(r"(.*) \(n = ([\d,]+)\)", re.DOTALL)


@pytest.fixture(scope="module")
def drawn():
    return figures(REPORT)


def drawings(*tasks):
    """The drawings of some tasks by key, before they become SVG."""
    by_key = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            figure_style, "svg_element", lambda drawing, key: by_key.setdefault(key, drawing)
        )
        figures(replace(REPORT, tasks=tasks))
    return by_key


def texts(svg):
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_figure_is_one_element_for_a_page(drawn):
    assert list(drawn) == KEYS  # and no groups/empty, in which nothing is defined
    for key, svg in drawn.items():
        root = ET.fromstring(svg)
        assert svg.startswith("<svg ")
        assert (root.tag, root.get("role")) == (f"{SVG}svg", "img")
        assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
        assert root.get("aria-labelledby").split() == [root[0].get("id"), root[1].get("id")]
        assert key.partition("/")[0] in root[0].text or key == "summary"
        assert len(root[1].text) > 40
        assert not re.search(r"<style|style=|<script|<!DOCTYPE|<\?xml|<metadata", svg)
        assert not re.search(r"https?://(?!www\.w3\.org/)", svg)
        sample, partial = (
            "SAMPLE DATA: synthetic images, no score of a model",
            "PARTIAL RUN: 1,000 of 4,550 questions",
        )
        assert (sample in texts(svg)) == key.startswith("mediconfusion_gd/")
        assert (f"{partial} answered" in texts(svg)) == key.startswith("gmai_mmbench_val/")
    assert TASKS["multimedeval_mimic_cxr_report"].withheld
    assert SECRET not in "".join(drawn.values())
    words = texts(drawn["mediconfusion/groups/categories"])
    assert {"Cerebral (n = 100)", "Head and Neck (n = 60)", "Nuclear Medicine (n = 20)"} <= set(
        words
    )
    assert {"reference", "robust", "guessing, all questions: 25.0%"} <= set(words)
    assert "set_accuracy with simultaneous 95 % intervals" in words


@pytest.fixture(scope="module")
def ids(drawn):
    return {key: re.findall(r' id="([^"]*)"', svg) for key, svg in drawn.items()}


def test_figures_do_not_share_ids(ids):
    every = [name for names in ids.values() for name in names]
    assert len(set(every)) == len(every) > 100


def test_figures_refer_to_their_own_ids(drawn, ids):
    for key, svg in drawn.items():
        assert {
            "".join(found) for found in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg)
        } <= set(ids[key])


def test_the_same_report_gives_the_same_files(tmp_path):
    before = dict(matplotlib.rcParams)
    report = replace(REPORT, tasks=(replace(TASKS["mediconfusion"], name="a task/../b"),))
    elements = figures(report, tmp_path / "new" / "folder")
    assert elements == figures(report, tmp_path / "again")
    assert dict(matplotlib.rcParams) == before
    files = sorted(
        (tmp_path / "new" / "folder").iterdir(),
        key=lambda file: (file.stem != "summary", file.name),
    )
    assert [(tmp_path / "again" / file.name).read_bytes() for file in files] == [
        file.read_bytes() for file in files
    ]
    named = [
        "summary",
        *(
            f"a-20-task.-2e--2e-.b.{figure}"
            for figure in ("gains", "groups.categories", "pairs")
        ),
    ]
    assert [file.name for file in files] == [
        f"{name}.{form}" for name in named for form in ("png", "svg")
    ]
    assert files[1].read_text() == elements["summary"]
    with Image.open(files[0]) as picture:
        assert picture.width == 1400
        assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_figures_that_cannot_be_written_are_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(MedTasksError, match=r"cannot write figures into .*file"):
        figures(REPORT, tmp_path / "file")


@pytest.fixture
def axes_of_departments():
    return drawings(TASKS["gmai_mmbench_val"])[
        "gmai_mmbench_val/groups/department"
    ].figure.axes[0]


def test_the_largest_group_is_on_top(axes_of_departments):
    axes = axes_of_departments
    sizes = [
        int(SIZED.fullmatch(label.get_text()).group(2).replace(",", ""))
        for label in axes.get_yticklabels()
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 18


def test_points_are_at_scores_of_groups(axes_of_departments):
    axes = axes_of_departments
    for position, rule in enumerate(TASKS["gmai_mmbench_val"].rules):
        points = [line for line in axes.lines if line.get_marker() in MARKERS][
            18 * position : 18 * (position + 1)
        ]
        values = [group.scores[0].value for group in rule.groups["department"]]
        assert [point.get_xdata()[0] for point in points] == values
        ends = [
            lines.get_segments()[0][:, 0]
            for lines in axes.collections[18 * position : 18 * (position + 1)]
        ]
        for (low, high), group in zip(ends, rule.groups["department"], strict=True):
            assert (low, high) == pytest.approx((group.scores[0].low, group.scores[0].high))


def test_a_line_is_at_the_score_of_all_questions(axes_of_departments):
    axes = axes_of_departments
    (line,) = [line for line in axes.lines if "all questions" in str(line.get_label())]

    assert line.get_xdata()[0] == 0.3
    assert axes.get_xlim() == (0, 1)


def test_each_rule_looks_the_same_in_all_figures():
    looks = rule_looks(REPORT)
    assert [looks[name] for name in ("reference", "robust", "reference_2026")] == list(
        LOOKS[:3]
    )
    lines = (
        drawings(TASKS["mediconfusion"])["mediconfusion/groups/categories"].figure.axes[0].lines
    )
    shown = [line.get_marker() for line in lines if line.get_marker() in MARKERS]
    assert shown == [LOOKS[0].marker] * 3 + [LOOKS[1].marker] * 3
    assert len({look.hatch for look in LOOKS}) == len(MARKERS) == 6


@matplotlib.rc_context(RC_PARAMS)
def test_an_undefined_score_is_named():
    none = replace(share("accuracy", 0.0), low=NAN, high=NAN)
    valued = zip(groups(["zero", "n/a", "more"], 30, 0.1), (0.0, NAN, 0.5), strict=True)
    shown = tuple(
        replace(group, scores=(replace(none, value=value),)) for group, value in valued
    )
    rule = replace(TASKS["mediconfusion"].rules[0], groups={"x": shown})
    axes = drawings(replace(TASKS["mediconfusion"], rules=(rule,)))[
        "mediconfusion/groups/x"
    ].figure.axes[0]
    assert [(text.get_text().strip(), text.get_position()[1]) for text in axes.texts] == [
        ("n/a", 1)
    ]
    assert not axes.collections


@matplotlib.rc_context(RC_PARAMS)
def test_names_do_not_leave_the_figure():
    name = "An invented " + "department with a name beyond all measure " * 5
    group = groups([name], 30, 0.1)[0]
    rule = TASKS["mediconfusion"].rules[0]
    rule = replace(rule, groups={"x": (group, replace(group, name=""))})
    drawing = drawings(replace(TASKS["mediconfusion"], rules=(rule,)))["mediconfusion/groups/x"]
    drawing.figure.draw_without_rendering()
    long, empty = drawing.figure.axes[0].get_yticklabels()
    assert min(long.get_window_extent().x0, empty.get_window_extent().x0) >= 0
    assert long.get_text().count("\n") <= 2
    assert "…" in long.get_text()
    assert empty.get_text() == "(empty) (n = 30)"
    assert name.strip() in drawing.describes


@matplotlib.rc_context(RC_PARAMS)
def test_all_words_are_inside_the_picture():
    for key, drawing in drawings(*REPORT.tasks).items():
        words = drawing.figure.get_tightbbox()
        width, height = drawing.figure.get_size_inches()
        assert min(words.x0, words.y0) >= -0.01, key
        assert words.x1 <= width + 0.01, key
        assert words.y1 <= height + 0.01, key
        assert height < 11, key


def test_the_summary_names_metrics_that_are_no_share():
    other = replace(TASKS["mediconfusion"], name="no_share")
    score = replace(other.rules[0].scores[0], share=False)
    other = replace(other, rules=(replace(other.rules[0], scores=(score,)),))
    drawing = drawings(*REPORT.tasks, other)["summary"]
    axes = drawing.figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[1] == "mediconfusion_gd\nset_accuracy\nSAMPLE DATA"
    assert labels[3] == "gmai_mmbench_val\naccuracy\nPARTIAL RUN"
    assert len(labels) == 4
    points = sorted(line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1)
    baselines = [
        marks.get_offsets()[:, 0].tolist()
        for marks in axes.collections
        if isinstance(marks, PathCollection)
    ]
    assert baselines == [[0, 0.25], [0, 0.25], [], [0.3]]
    assert points == pytest.approx(sorted([0.31, 0.33, 0.38, 0.125, 0.225, 0.125, 0.127]))
    assert (
        "Not shown, because their main metric is no share: made_up_reports, no_share."
        in drawing.describes
    )
    assert "summary" not in drawings(other)
    assert drawings() == {}


def test_parts_of_a_bar_are_the_outcomes_of_pairs():
    drawing = drawings(TASKS["mediconfusion"])["mediconfusion/pairs"]
    axes = drawing.figure.axes[0]
    widths = [bar.get_width() for bar in axes.patches[::2]]
    assert widths == [22, 80, 40, 17, 12, 5]
    assert [bar.get_x() for bar in axes.patches[::2]] == [0, 22, 102, 142, 159, 171]
    assert "reference: both right 22, both answered a 80" in drawing.describes
    assert axes.get_xlim() == (0, 176)
    zeros = dict.fromkeys(("both_right", "swapped", "one_invalid", "both_invalid"), 0)
    none = replace(TASKS["mediconfusion"].rules[0].pairs, same={}, **zeros)
    rule = replace(TASKS["mediconfusion"].rules[0], pairs=none)
    assert "mediconfusion/pairs" not in drawings(replace(TASKS["mediconfusion"], rules=(rule,)))


def test_gains_are_those_of_the_main_metric():
    task = TASKS["mediconfusion"]
    other = replace(task.gains[0], metric="confusion", difference=0.9)
    undefined = replace(task.gains[0], variant="lost", difference=NAN)
    key = "mediconfusion/gains"
    axes = drawings(replace(task, gains=(*task.gains, other, undefined)))[key].figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "blind",
        "blank",
        "swapped",
    ]
    points = [line for line in axes.lines if line.get_marker() in MARKERS]
    assert sorted(point.get_xdata()[0] for point in points) == sorted(
        gain.difference for gain in task.gains
    )
    assert axes.get_xlim()[1] < 0.3
    assert "percentage points" in axes.get_xlabel()
    assert key not in drawings(replace(task, gains=(undefined,)))
    alone = drawings(replace(task, gains=(other,)))[key].figure.axes[0]
    assert alone.get_xlabel().startswith("confusion minus that of the variant")
    assert [line.get_xdata()[0] for line in alone.lines if line.get_marker() in MARKERS] == [
        0.9
    ]


def test_reliability_shows_the_measured_bins():
    task = TASKS["mediconfusion_gd"]
    found = task.calibration["reference"]
    shown = drawings(task)
    axes, below = shown["mediconfusion_gd/reliability/reference"].figure.axes
    line = next(line for line in axes.lines if line.get_label() == "this model")
    filled = [one for one in found.bins if one.samples]
    assert list(line.get_xdata()) == [one.confidence for one in filled]
    assert list(line.get_ydata()) == [one.accuracy for one in filled]
    assert [bar.get_height() for bar in below.patches] == [one.samples for one in filled]
    assert "0.200 [0.150 to 0.260]" in " ".join(text.get_text() for text in axes.texts)
    assert "0.120 debiased" in " ".join(text.get_text() for text in axes.texts)


def test_coverage_shows_the_measured_points():
    task = TASKS["mediconfusion_gd"]
    found = task.calibration["reference"]
    shown = drawings(task)
    axes = shown["mediconfusion_gd/coverage/reference"].figure.axes[0]

    level, curve = axes.lines
    assert list(level.get_ydata()) == [0.5, 0.5]
    assert list(curve.get_xdata()) == sorted(point.coverage for point in found.coverage)
    assert curve.get_ydata()[-1] == found.coverage[0].accuracy
    of_texts = replace(task, calibration={"reference": replace(found, bins=())})
    assert shown.keys() - drawings(of_texts).keys() == {
        "mediconfusion_gd/reliability/reference"
    }


@settings(max_examples=8)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_no_name_breaks_a_figure(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = figures(nasty(text))
    assert len(found) == 3
    roots = [ET.fromstring(svg) for svg in found.values()]
    name = " ".join(re.sub("[\x00-\x1f\x7f\ufffe\uffff]", " ", text).split())
    assert [root[0].text.startswith(name) for root in roots[1:]] == [
        True,
        True,
    ]  # no formula and no markup
    assert all(name in root[1].text for root in roots)
