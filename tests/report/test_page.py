import base64
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageFile

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.decoding import LINEAR, REFERENCE, decode_image
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import Reason
from medtasks.report import page
from medtasks.report.page import LEFT_OUT, SIDES, named_options, thumbnails, write_page
from medtasks.report.report_model import report_as_dict
from medtasks.report.wording import REASONS
from medtasks.scores.score_model import MetricScore
from medtasks.version import __version__

from ..tables import each_row
from . import made_up_report as made_up
from .page_structure import Structure

LOADING = {
    "src",
    "href",
    "srcset",
    "data",
    "action",
    "poster",
    "xlink:href",
    "background",
    "formaction",
}


def data_of(text, name="audit-data"):
    (found,) = re.findall(
        rf'<script type="application/json" id="{name}">(.*?)</script>', text, flags=re.DOTALL
    )
    return json.loads(found)


def written(report, folder, **options):
    path = folder / "page.html"
    write_page(report, path, **options)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    return written(made_up.full_report(folder / "pictures"), folder)


def test_the_page_loads_nothing(full):
    structure = Structure(full)
    for tag, attributes in structure.elements:
        for name in LOADING & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, name, attributes[name])
    outside_of_data = re.sub(
        r'<script type="application/json".*?</script>', "", full, flags=re.DOTALL
    )
    assert not re.search(r"https?:|@import|url\(", outside_of_data)


def test_the_policy_of_the_page_allows_only_its_own_script(full):
    structure = Structure(full)

    assert structure.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert structure.policy.count("'unsafe-inline'") == 1
    assert "style-src 'unsafe-inline'" in structure.policy


def test_links_of_the_page_lead_to_its_parts(full):
    structure = Structure(full)

    assert len(structure.ids) == len(set(structure.ids))
    links = {a["href"] for t, a in structure.elements if t == "a" and "=" not in a["href"]}
    assert {link.removeprefix("#") for link in links} <= set(structure.ids)


def test_each_table_of_the_page_has_a_caption(full):
    tables = re.findall(r"<table.*?</table>", full, flags=re.DOTALL)

    assert len(tables) > 20
    for table in tables:
        assert re.search(r"<caption[^>]*>\s*\S", table)
        assert all("scope=" in heading for heading in re.findall(r"<th\b[^>]*>", table))


PARTS = (
    *(
        "made_up_model: size=<small> & cheap",
        "2026-01-01 00:00:00 UTC",
        "2026-01-02 03:04:05 UTC",
    ),
    *(
        f"medtasks {__version__}",
        "lmms_eval --model x --tasks a,b",
        "The run was stopped once and went on.",
    ),
    "medheval_visual_mm : Failed: the dataset is not prepared.",  # a task that is missing
    *(
        "12.5% 7.5 to 17.5",
        "12.5% 7.5 to 17.5 standard error 2.5 pts",
        "12.500 9.500 to 15.500",
        "lower is better",
    ),
    *("25.0% (guessing)", "+2.5 pts −2.0 to +10.0", "n/a no question of this level"),
    *(
        "RadFM 0.57% 4",
        "5 Misprint for 35.80",
        "Sepehri et al., MediConfusion, arXiv 2409.15477, Table 1",
    ),
    *("12 3.4%", REASONS["refused"][1]),  # reasons of invalid replies
    "Both answered A The two images were not told apart. 80 45.5%",
    "refusal The model said that it cannot or will not answer. 1",
    "0.200 0.150 to 0.260 0.120 0.500 0.600 0.500 to 0.700",  # calibration; of the Brier score no interval
    "no likelihoods that could be read: 1 question.",
)


def test_every_part_is_on_the_page(full):
    text = Structure(full).text
    assert [part for part in PARTS if part not in text] == []
    assert "nan" not in text.casefold()
    assert "<title>Made-up model on made-up tasks</title>" in full


def test_results_of_this_run_are_before_published_ones(full):
    pattern = (
        r"<table[^>]*>\s*<caption>Published results(?:(?!</table>).)*set_accuracy.*?</table>"
    )
    rows = re.findall(
        r'<tr( class="ours")?>\s*<th scope="row"[^>]*>(.*?)</th>',
        re.search(pattern, full, re.DOTALL)[0],
    )
    assert rows[:2] == [
        (' class="ours"', "This run, reference"),
        (' class="ours"', "This run, robust"),
    ]
    assert ("", "RadFM") in rows[2:]


def test_a_whole_set_has_no_banner(tmp_path):
    task = made_up.paired_task(tmp_path)
    whole = Structure(written(made_up.report_of(task), tmp_path)).text
    assert not re.search("SAMPLE DATA|Incomplete data|Images as models see them", whole)


def test_sample_data_have_a_banner(tmp_path):
    task = made_up.paired_task(tmp_path)
    sample = Structure(
        written(made_up.report_of(replace(task, sample_data=True)), tmp_path)
    ).text
    assert "SAMPLE DATA: synthetic images; these scores say nothing about a model." in sample


def test_an_incomplete_set_has_a_banner(tmp_path):
    task = made_up.paired_task(tmp_path)
    partial = Structure(
        written(made_up.report_of(replace(task, complete_data=False)), tmp_path)
    ).text
    assert "Incomplete data: a part of the published set is not there." in partial
    assert "the two must not be compared" in partial


def test_a_limited_run_has_a_banner(tmp_path):
    task = made_up.paired_task(tmp_path)
    limited = replace(task, documents=400, image_conversions="linear")
    text = Structure(written(made_up.report_of(limited), tmp_path)).text
    assert "352 of 400 not all" in text
    assert "the two must not be compared" in text
    assert "Images as models see them linear" in text


def test_a_report_without_anything_is_still_a_page(tmp_path):
    text = Structure(written(made_up.report_of(facts={}, model="", run_at=""), tmp_path)).text
    assert "No task of this run has a result." in text
    assert "No single replies can be shown" in text
    assert "Nothing is recorded about how this run was made." in text
    missing = ("There are no samples; add --log_samples.",)
    bare = replace(made_up.bare_task("bare"), rules=(), missing=missing)
    text = Structure(written(made_up.report_of(bare), tmp_path)).text
    assert missing[0] in text
    assert "no score: see its section" in text


def test_items_survive_the_way_into_the_page(full):
    data = data_of(full)
    assert made_up.HOSTILE in [
        data["texts"][item["r"]] for item in data["items"] if "r" in item
    ]
    (block,) = re.findall(r'id="audit-data">(.*?)</script>', full, flags=re.DOTALL)
    assert not set("<>&\u2028") & set(block)


def test_items_of_a_withheld_task_are_nowhere(full, tmp_path):
    data = data_of(full)
    assert made_up.SECRET not in full
    items = [item for item in data["items"] if item["t"] == 3]
    assert len(items) == 12
    assert all(item.keys() == {"t", "id", "u", "l", "a", "g"} for item in items)
    text = written(
        made_up.report_of(replace(made_up.paired_task(tmp_path), withheld=True)), tmp_path
    )
    assert data_of(text, "audit-pictures") == []
    assert "picture11" not in text
    assert "missing or not readable" not in text


def test_names_of_tasks_and_groups_are_escaped(tmp_path):
    name = "<b>bold</b> & 'quoted' \ud800"
    rule = made_up.paired_rule("reference")
    groups = {name: tuple(replace(group, name=name) for group in rule.groups["categories"])}
    task = replace(
        made_up.bare_task(name), rules=(replace(rule, groups=groups),), describes=name
    )
    report = made_up.report_of(task, title=name, missing={name: name}, notes=(name,))
    text = written(report, tmp_path)
    assert "<b>bold" not in text
    assert text.count("&lt;b&gt;bold&lt;/b&gt; &amp; &#39;quoted&#39; ?") > 8


def test_figures_stand_where_they_belong_and_tables_beside_them(tmp_path):
    task = made_up.paired_task(tmp_path)
    keys = (
        "summary",
        "mediconfusion/groups/categories",
        "mediconfusion/pairs",
        "mediconfusion/gains",
    )
    figures = {key: f'<svg role="img"><title>{key}</title></svg>' for key in keys}
    text = written(
        made_up.report_of(task, made_up.likelihood_task()), tmp_path, figures=figures
    )
    for figure in figures.values():
        assert text.count(figure) == 1
    places = [
        text.index(part)
        for part in (figures["summary"], 'id="task-mediconfusion"', figures[keys[2]])
    ]
    assert places == sorted(places)
    assert "Nuclear Medicine" in Structure(text).text


def test_pictures_of_two_tasks_are_on_the_page_once(tmp_path):
    first = made_up.paired_task(tmp_path)
    second = replace(first, name="again")
    text = written(made_up.report_of(first, second), tmp_path)
    data, uris = data_of(text), data_of(text, "audit-pictures")
    assert len(uris) == 12
    assert [item["i"] for item in data["items"][:12]] == [
        item["i"] for item in data["items"][12:]
    ]
    assert data["pictures"][0][:2] == [320, 240]


def test_other_pictures_with_equal_keys_are_on_the_page_too(tmp_path):
    first = made_up.paired_task(tmp_path)
    other = replace(made_up.paired_task(tmp_path / "b"), name="other")

    assert (
        len(data_of(written(made_up.report_of(first, other), tmp_path), "audit-pictures")) == 24
    )


def test_pictures_without_room_are_counted(tmp_path, monkeypatch):
    first = made_up.paired_task(tmp_path)
    thumbnails = page.thumbnails
    with monkeypatch.context() as patch:
        patch.setattr(page, "thumbnails", lambda files, **how: thumbnails(files, 6000, **how))
        text = Structure(written(made_up.report_of(first), tmp_path)).text
    assert re.search(
        r"\d+ pictures of 12 left out to keep this file small; the others are 96 pixels at most",
        text,
    )


def test_pictures_are_decoded_by_the_rule_of_their_task(tmp_path):
    first = made_up.paired_task(tmp_path)
    file = next(iter(first.pictures.values()))
    Image.linear_gradient("L").convert("I;16").point(lambda value: value * 257).save(file)
    for decoding, remark in (
        (None, "16 bits scaled from 0..65535"),
        (REFERENCE, "more than 8 bits cut off at 255"),
    ):
        text = written(made_up.report_of(replace(first, decoding=decoding)), tmp_path)
        assert remark in [shown[2] for shown in data_of(text)["pictures"]]


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(
        MedTasksError,
        match=r"cannot write the page .*folder.html: Is a directory; make room, or name",
    ):
        write_page(made_up.report_of(), tmp_path / "folder.html")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]
    with pytest.raises(MedTasksError, match="nowhere"):
        write_page(made_up.report_of(), tmp_path / "nowhere" / "page.html")


@each_row(
    "answer, options, expected",
    [
        ("A, C", ["x", "y", "z"], [0, 2]),
        ("D", ["x", "y", "z"], []),
        ("A B", ["A B", "other"], [0, 1]),
        ("Yes", ["yes", "no"], [0]),
        ("", ["", "x"], [0]),
        ("none", ["x"], []),
    ],
)
def test_options_that_an_answer_names(answer, options, expected):
    assert named_options(answer, options) == expected


def test_a_section_opens_with_what_is_in_no_score(tmp_path):
    task = made_up.bare_task("made_up_pairs")
    rule = replace(task.rules[0], reasons={"ok": 2, "judge_failed": 3, "adapter_failed": 1})
    lost = replace(task, rules=(rule,))
    assert (str(lost.largest_loss), task.largest_loss) == (
        "1 failed and 3 unjudged of 6 samples",
        None,
    )
    counted = [made_up.share("scored_samples", 4), made_up.share("failed_samples", 2)]
    assert (
        replace(rule, scores=(*rule.scores, *counted)).counts.failed == 2
    )  # counts of the run go before reasons
    page = Structure(written(made_up.report_of(lost), tmp_path)).text
    assert "1 failed and 3 unjudged of 6 samples: they are in no score here" in page
    assert "medtasks score made_up_pairs SAMPLES_FILE" in page
    assert "--only-failed" in page
    assert "in no score here" not in Structure(written(made_up.report_of(task), tmp_path)).text


def test_a_metric_without_a_better_direction_has_no_arrow(tmp_path):
    task = made_up.bare_task("made_up_pairs")
    shares = (
        made_up.share("yes_rate", 0.5, higher_is_better=None),
        made_up.share("accuracy", 0.5),
    )
    task = replace(task, rules=(replace(task.rules[0], scores=shares),))
    text = Structure(written(made_up.report_of(task), tmp_path)).text
    assert "↑ higher is better" in text.partition("yes_rate 50.0%")[2]
    assert text.count("higher is better") == 1


def test_everything_is_json_and_paths_are_not_in_it(tmp_path):
    report = made_up.full_report(tmp_path)
    score = MetricScore(
        "accuracy",
        np.float64(0.5),
        math.nan,
        math.inf,
        -math.inf,
        share=True,
        higher_is_better=True,
    )
    rule = replace(
        report.tasks[0].rules[0], scores=(score,), reasons={Reason.EMPTY: np.int64(3)}
    )
    item = replace(
        report.tasks[0].items[0],
        reply="half a surrogate \ud83d",
        losses=(np.float32(0.25), math.nan),
    )
    task = replace(report.tasks[0], rules=(rule,), items=(item,))
    content = report_as_dict(replace(report, tasks=(task,)))
    text = json.dumps(content, allow_nan=False)
    assert json.loads(text) == content
    assert str(tmp_path) not in text
    (task,) = content["tasks"]
    undefined = dict.fromkeys(("error", "low", "high"))
    flags = {
        "share": True,
        "higher_is_better": True,
        "by_construction": False,
        "clusters": None,
    }
    assert task["rules"][0]["scores"] == [
        {"metric": "accuracy", "value": 0.5, **undefined, **flags}
    ]
    assert task["rules"][0]["reasons"] == {"empty": 3}
    (item,) = task["items"]
    assert item["losses"] == [0.25, None]
    assert item["answers"]["robust"] == {
        "value": "A",
        "reason": "ok",
        "right": True,
        "score": None,
    }
    assert (task["withheld"], item["groups"]) == (False, {"categories": ["Head and Neck"]})
    assert content["notes"] == ["The run was stopped once and went on."]


def opened(thumbnail):
    head, _, data = thumbnail.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def only(path, **options):
    return thumbnails([path], **options).by_file[path]


def saved(image, path, **options):
    image.save(path, **options)
    return path


@each_row("name", ["large.jpg", "large.png"])
def test_shades_survive_whether_or_not_the_decoder_reduces(tmp_path, name):
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (64, 1)))
    made = only(saved(ramp.resize((2048, 512), Image.Resampling.BICUBIC), tmp_path / name))
    row = np.asarray(opened(made), dtype=int)[60]
    assert opened(made).mode == "L"
    assert np.abs(row - np.linspace(0, 255, len(row))).max() < 6


def test_a_picture_is_shown_as_models_see_it(tmp_path, monkeypatch):
    """By the rule of its dataset, by that of its task, or by the careful one; never by one of the page's own."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    values = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (64, 1))
    exif = Image.Exif()
    exif[274] = 6
    folder = tmp_path / "datasets" / "published"
    folder.mkdir(parents=True)
    facts = dict.fromkeys(("source", "revision", "access", "text_sha256", "pixels_sha256"), "")
    Manifest(name="published", sample=False, complete=True, rows=1, images=1, **facts).write(
        folder
    )
    for place in (folder, tmp_path):
        saved(Image.fromarray(values), place / "deep.png", exif=exif)
    published, own = (
        thumbnails([place / "deep.png"]).by_file[place / "deep.png"]
        for place in (folder, tmp_path)
    )
    given = thumbnails([tmp_path / "deep.png"], decodings={tmp_path / "deep.png": REFERENCE})
    for made, decoding in (
        (published, REFERENCE),
        (own, LINEAR),
        (given.by_file[tmp_path / "deep.png"], REFERENCE),
    ):
        seen = decode_image(tmp_path / "deep.png", decoding)
        assert (made.width, made.height) == seen.pixels.size
        assert made.remark == "; ".join(seen.conversions)
        assert (
            np.abs(
                np.asarray(opened(made), dtype=int) - np.asarray(seen.pixels, dtype=int)[..., 0]
            ).max()
            < 8
        )
    assert published.remark == "more than 8 bits cut off at 255; EXIF orientation ignored"
    assert own.remark == "16 bits scaled from 0..65535; EXIF orientation applied"


def test_missing_and_broken_files_have_a_remark_and_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as the harness leaves it
    whole = saved(Image.effect_noise((200, 200), 80), tmp_path / "whole.png")
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole.read_bytes()[:-4000])
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    made = thumbnails([whole, cut, text, tmp_path, tmp_path / "gone.jpg"])
    assert [bool(one.uri) for one in made.by_file.values()] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert "cannot be read" in made.by_file[cut].remark
    assert "missing" in made.by_file[tmp_path / "gone.jpg"].remark
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.fixture(scope="module")
def noisy_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    return [
        saved(Image.effect_noise((400, 300), 40 + n), folder / f"{n:03}.png") for n in range(40)
    ]


def test_many_pictures_are_made_smaller_until_all_fit(noisy_files):
    files = noisy_files
    assert thumbnails(files).side == SIDES[0]
    for budget in (1_500_000, 700_000):
        made = thumbnails(files, budget=budget)
        assert SIDES[-1] < made.side < 400
        assert sum(len(one.uri) for one in made.by_file.values()) <= budget
        assert (
            max(opened(one).width for one in made.by_file.values()) == made.side
        )  # and all can be opened


def test_pictures_that_never_fit_are_left_out_from_the_end(noisy_files):
    files = noisy_files
    made = thumbnails(files, budget=60_000)
    shown = [bool(made.by_file[file].uri) for file in files]
    assert made.side == SIDES[-1]
    assert 0 < sum(shown) < 40
    assert shown == sorted(shown, reverse=True)
    assert [one.remark == LEFT_OUT for one in made.by_file.values()] == [
        not one for one in shown
    ]
    assert sum(len(one.uri) for one in made.by_file.values()) <= 60_000


def test_simple_pictures_do_not_let_the_rest_overflow(noisy_files, tmp_path):
    plain = [
        saved(Image.new("L", (400, 300), 9), tmp_path / f"plain{index}.png")
        for index in range(24)
    ]
    mixed = [file for pair in zip(plain, noisy_files[:24], strict=True) for file in pair]

    # Every second file is probed: only plain ones.
    made = thumbnails(mixed, budget=500_000)

    assert all(one.uri for one in made.by_file.values())
    assert SIDES[-1] < made.side < SIDES[0]
    assert sum(len(one.uri) for one in made.by_file.values()) <= 500_000
