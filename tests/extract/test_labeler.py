"""Findings read by CheXbert or by a user's labeler, and what its absence and its faults come to."""

import importlib
import textwrap

import pytest

from medtasks.errors import LabelerError
from medtasks.extract import labeler as labeler_module
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.failure import failed_reply
from medtasks.extract.labeler import (
    CONDITIONS,
    Finding,
    from_labels,
    label_replies,
    label_texts,
    labeler,
)
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import chexbert_network as network_module
from medtasks.metrics.neural.chexbert import Chexbert

from .. import tiny_chexbert
from ..tables import each_row
from .reading import findings_of, reading

chexbert_labels = reading("chexbert_labels")

NAMES = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]
KEYWORDS = """
    from medtasks.extract.labeler import CONDITIONS, Finding

    built, calls = [], []

    def factory():
        built.append(1)
        return label

    def label(texts):
        calls.append(list(texts))
        return [{name: finding(text, name) for name in CONDITIONS} for text in texts]

    def picky():
        return strict

    def strict(texts):
        if any("Doe" in text for text in texts):
            raise RuntimeError(f"cannot tokenise {texts}")
        return label(texts)

    def finding(text, name):
        text, name = text.lower(), name.lower()
        if name not in text:
            return Finding.BLANK
        if "no " + name in text:
            return Finding.NEGATIVE
        return Finding.UNCERTAIN if "possible " + name in text else Finding.POSITIVE
"""
REPLY = "Mr. Doe has edema, possible consolidation, no cardiomegaly."


@pytest.fixture(autouse=True)
def _fresh_process():
    labeler_module._build_labeler.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write a module that belongs to this test alone, and name its factory in the environment."""
    name = f"labeler_of_{tmp_path.name}"

    def write(source=KEYWORDS, factory="factory"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("MEDTASKS_LABELER", f"{name}:{factory}")
        return name

    return write


def test_only_positive_findings_are_present(install):
    install()
    named = ("BLANK", "NEGATIVE", "UNCERTAIN", "POSITIVE", "BLANK")
    assert findings_of([REPLY], NAMES) == [tuple(Finding[name] for name in named)]
    assert chexbert_labels(REPLY, NAMES).value == (0, 0, 0, 1, 0)
    assert chexbert_labels(REPLY, NAMES[::-1]).value == (0, 1, 0, 0, 0)
    assert chexbert_labels("Atelectasis and pleural effusion", NAMES).value == (1, 0, 0, 0, 1)


def test_the_labeler_is_built_once(install):
    name = install()
    assert labeler() is labeler()
    chexbert_labels(REPLY, NAMES)
    assert importlib.import_module(name).built == [1]


def test_without_a_labeler_one_warning_says_what_to_do(warnings):
    answers = [chexbert_labels(reply, NAMES) for reply in (REPLY, "edema", "no edema")]
    assert {(answer.value, answer.reason) for answer in answers} == {
        (None, Reason.JUDGE_FAILED)
    }
    assert len(warnings) == 1
    assert "none is configured" in warnings[0]


@each_row(
    ("named", "cause"),
    [
        (
            "no_such_module_at_all:factory",
            "cannot be built: ModuleNotFoundError: No module named",
        ),
        ("medtasks.extract.labeler:chexbert", "cannot be built: AttributeError"),
        ("medtasks.extract.labeler", "not of the form module:factory"),
        ("medtasks.extract.labeler:_origin", "cannot be built: TypeError"),
        ("builtins:list", "returned a list"),
    ],
)
def test_a_labeler_that_cannot_be_built_is_reported_once(monkeypatch, warnings, named, cause):
    warnings.clear()
    monkeypatch.setenv("MEDTASKS_LABELER", named)
    for _ in range(3):
        assert chexbert_labels(REPLY, NAMES).reason is Reason.JUDGE_FAILED
    (warning,) = warnings
    assert cause in warning
    assert named in warning


def test_an_error_of_the_labeler_costs_its_sample_alone(install):
    install(factory="picky")

    answers = [chexbert_labels(reply, NAMES) for reply in (REPLY, "edema", REPLY)]

    assert [answer.reason for answer in answers] == [
        Reason.JUDGE_FAILED,
        Reason.OK,
        Reason.JUDGE_FAILED,
    ]
    assert values(["edema", REPLY, "cardiomegaly"]) == [(0, 0, 0, 1, 0), None, (0, 1, 0, 0, 0)]
    with pytest.raises(LabelerError, match="the labeler raised RuntimeError"):
        findings_of(["edema", REPLY], NAMES)


def test_an_error_of_the_labeler_is_logged_without_the_text(install, warnings):
    install(factory="picky")

    chexbert_labels(REPLY, NAMES)
    chexbert_labels(REPLY, NAMES)

    (warning,) = warnings
    assert "the labeler raised RuntimeError in labeler_of_" in warning
    assert "(strict)" in warning
    assert not [word for word in ("Doe", "edema", "tokenise") if word in warning]


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ("[]", "gave 0 results"),
        ("[[1] * 14]", "1 results (list) for 1 text"),
        ("None", "raised TypeError"),
        ("[{'Edema': 1}]", "no value for 'Atelectasis'"),
        *(
            (
                f"[dict.fromkeys(CONDITIONS, {value})]",
                "value for 'Atelectasis' is none of 0 blank",
            )
            for value in ("-1", "'positive'", "[1]", "float('nan')")
        ),
    ],
)
def test_a_result_that_does_not_fit_is_no_label(install, warnings, given, cause):
    install(
        f"from medtasks.extract.labeler import CONDITIONS\n\ndef factory():\n    return lambda texts: {given}"
    )
    assert chexbert_labels(REPLY, NAMES).reason is Reason.JUDGE_FAILED
    assert len(warnings) == 1
    assert cause in warnings[0]


REPLIES = [
    "There is edema.",
    "",
    "no cardiomegaly",
    None,
    failed_reply("edema"),
    "possible consolidation",
    "edema",
]


def values(replies, names=NAMES):
    return [
        from_labels(reply, labels, names).value
        for reply, labels in zip(replies, label_replies(replies), strict=True)
    ]


def test_all_replies_are_labelled_in_one_call(install):
    name = install()
    assert values(REPLIES) == [chexbert_labels(reply, NAMES).value for reply in REPLIES]
    calls = importlib.import_module(name).calls
    # One for all that say something, then one for each of these.
    assert calls == [
        ["There is edema.", "no cardiomegaly", "possible consolidation", "edema"],
        *([t] for t in calls[0]),
    ]


FAILING = "calls = []\n\ndef factory():\n    calls.append(1)\n    raise OSError('no weights')"


def test_nothing_to_label_builds_no_labeler(install, warnings):
    name = install(FAILING)
    assert label_replies(["", None, failed_reply("edema")]) == [None] * 3
    assert label_replies([]) == label_texts([]) == findings_of([], NAMES) == warnings == []
    assert importlib.import_module(name).calls == []


def test_a_factory_that_fails_is_called_once(install, warnings):
    name = install(FAILING)
    for _ in range(3):
        chexbert_labels(REPLY, NAMES)
    assert importlib.import_module(name).calls == [1]
    assert "OSError: no weights" in warnings[0]


def test_a_labeler_for_one_text_at_a_time_is_asked_one_by_one(install):
    install(
        "calls = []\n\ndef factory():\n    return lambda texts: [{'Edema': 1 + ('no' in texts[0]), 'Mass': 3}]"
    )
    findings = [(Finding.POSITIVE, Finding.UNCERTAIN), (Finding.NEGATIVE, Finding.UNCERTAIN)]
    assert findings_of(["edema", "no edema"], ["Edema", "Mass"]) == findings


@pytest.fixture
def chexbert(tmp_path, monkeypatch):
    """CheXbert in miniature where 'medtasks weights fetch' puts it, and how often it is loaded."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setenv("MEDTASKS_METRICS_DEVICE", "cpu")
    tiny_chexbert.write_fetched(tmp_path / "weights")
    loads = []
    original = network_module.load_network
    monkeypatch.setattr(
        network_module, "load_network", lambda *files: loads.append(files) or original(*files)
    )
    return loads


def test_without_another_labeler_chexbert_labels(chexbert):
    texts = ["There is edema.", "no effusion", "heart 12", "clear"]
    readings = Chexbert(ModelSettings(device="cpu", cache=None, progress=False))(texts)

    wanted = [tuple(Finding(number) for number in reading.classes) for reading in readings]
    assert findings_of(texts, CONDITIONS) == wanted
    assert len(set(wanted)) > 1
    places = [CONDITIONS.index(name) for name in NAMES]
    assert values(texts) == [tuple(int(row[place] == 1) for place in places) for row in wanted]
    assert {value for row in values(texts) for value in row} == {0, 1}


def test_a_labeler_that_is_named_goes_before_chexbert(chexbert, install):
    assert labeler() is labeler()
    loads = len(chexbert)
    install()
    assert findings_of(["possible edema"], ["Edema"])[0] == (Finding.UNCERTAIN,)
    assert len(chexbert) == loads


def test_damaged_weights_are_tried_once_for_all_replies(chexbert, warnings, tmp_path):
    checkpoint = tmp_path / "weights" / "chexbert" / "chexbert.pth"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert label_replies(["edema", "no edema", "heart"]) == [None] * 3
    assert len(chexbert) == 1
    assert len(warnings) == 1
    assert "chexbert.pth is damaged" in warnings[0]


@pytest.mark.parametrize("missing", ["chexbert", "bert-base-uncased"])
def test_without_weights_one_sentence_names_both_ways_out(chexbert, tmp_path, missing):
    (tmp_path / "weights" / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(LabelerError) as caught:
        labeler()

    message = str(caught.value)
    assert (
        "none is configured; run 'medtasks weights fetch chexbert bert-base-uncased'" in message
    )
    assert "MEDTASKS_LABELER=module:factory" in message
    assert str(tmp_path / "weights" / missing) in message

    (tmp_path / "elsewhere").rename(tmp_path / "weights" / missing)
    assert findings_of(["edema"], NAMES)[0]  # fetched meanwhile


def test_a_failing_network_is_loaded_once(chexbert, monkeypatch, warnings):
    def fail(self, ids, mask):
        raise RuntimeError("the driver does not like 'edema'")

    monkeypatch.setattr(network_module.ChexbertNetwork, "forward", fail)
    assert label_replies(["edema", "no edema", "heart"]) == [None] * 3
    assert len(chexbert) == 1
    assert len(warnings) == 1
    assert "CheXbert raised RuntimeError in test_labeler.py" in warnings[0]
    assert "driver" not in warnings[0]
