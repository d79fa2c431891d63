"""Page of duplicates, without a browser."""

import base64
import hashlib
import re

from medtasks.data.dataset_lookup import provenance
from medtasks.data.duplicates.duplicate_search import find_duplicates
from medtasks.data.duplicates.image_copies import dataset_images as dataset_pictures
from medtasks.data.duplicates.image_copies import other_images as other_pictures
from medtasks.report import dataset_pages
from medtasks.report.dataset_pages import DuplicateNames, duplicates_as_dict

from ..picture_sets import jpeg_bytes, prepare_set, texture, write_folder
from .page_structure import Structure


def written(name, path, other=None, sample=False):
    shown = dataset_pictures(name)
    found = find_duplicates(shown, other and other_pictures(str(other)), 40)
    names = DuplicateNames(found)
    contents = duplicates_as_dict(name, provenance(name), found, names, 40)
    dataset_pages.write_duplicates_page(contents, found, names, path, sample=sample)
    return Structure(path.read_text(encoding="utf-8"))


def test_each_finding_is_shown_side_by_side(tmp_path):
    """Of a set with a leak and copies of its pictures, in files with names that look like markup."""
    rows = [{"doc_id": f"q{number} <b>&", "pictures": [texture(number)]} for number in range(4)]
    examples = [{"doc_id": "e1", "pictures": [jpeg_bytes(texture(3), 80)]}]
    prepare_set("bench", rows, examples)
    copies = {
        "<img src=x onerror=alert(1)>.png": texture(0),
        '"quoted".jpg': texture(1),
        "inverted.png": texture(9),
    }
    page = written("bench", tmp_path / "p.html", write_folder(tmp_path / "training", copies))
    findings = page.all("article")
    assert [(one["data-kind"], one["data-concern"]) for one in findings] == [
        ("same pixels", ""),
        ("looks the same", ""),
        ("looks the same", "solved example"),
    ]
    pictures = page.all("img")
    assert len(pictures) == 6
    assert all(one["src"].startswith("data:image/jpeg;base64,") for one in pictures)
    assert "q0 <b>&" in page.text
    assert "<img src=x onerror=alert(1)>.png" in page.text
    assert "bits differ, details correlate by 0.9" in page.text
    assert (
        "4 questions on 4 distinct pictures, 1 more picture in solved examples only."
        in page.text
    )

    # It loads nothing and runs only its own script.
    source = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert (
        re.findall(
            r"""(?:https?:)?//[\w-]+\.\w""",
            re.sub(r"data:image/jpeg;base64,[\w+/=]+", "", source),
        )
        == []
    )
    assert [
        attributes
        for _, attributes in page.elements
        if "onerror" in attributes or "onclick" in attributes
    ] == []
    (script,) = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert (allowed["default-src"], allowed["img-src"]) == ("'none'", "data:")
    assert allowed["script-src"] == f"'sha256-{digest}'"
    assert len(page.all("script")) == 1


def test_only_the_surest_are_shown_and_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_pages, "MOST_SHOWN", 2)
    prepare_set(
        "bench",
        [{"doc_id": f"q{number}", "pictures": [texture(number)]} for number in range(5)],
    )
    copies = {f"{number}.jpg": jpeg_bytes(texture(number), 60) for number in range(4)} | {
        "same.bmp": texture(4)
    }
    page = written("bench", tmp_path / "p.html", write_folder(tmp_path / "training", copies))
    assert [one["data-kind"] for one in page.all("article")] == [
        "same pixels",
        "looks the same",
    ]
    assert len(page.all("img")) == 4
    assert "The 2 surest of 5 findings are shown" in page.text
    assert "any of these 5 5 (100.0%)" in page.text
    rows = [
        {"doc_id": f"q{number}", "pictures": [texture(1)], "image_id": f"i{number}"}
        for number in range(40)
    ]
    prepare_set("crowd", rows)  # many questions on one picture do not flood the page
    page = written("crowd", tmp_path / "p.html")
    assert len(page.all("article")) == 1
    assert "34 more" in page.text
