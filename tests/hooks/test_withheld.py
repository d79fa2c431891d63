"""Text of credentialed records: never in what hooks hand to the harness, in messages or in results."""

import copy
import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from medtasks.hooks.reading import tagged
from medtasks.hooks.withheld import hidden_ids, withhold

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.manifest import Manifest
from medtasks.data.privacy import PrivateText, hidden_id, is_private
from medtasks.data.provenance_of import provenance
from medtasks.errors import SourceError
from medtasks.harness.logged_samples import without_scoring
from medtasks.hooks import choice, classification, multilabel, open_questions, pairs
from medtasks.prompts.images import images

CREDENTIALED = "multimedeval_mednli"
WRITTEN = ("doc", "target", "arguments", "resps", "filtered_resps", "input", "input_media")  # by the harness


def write_manifest(home: Path, name: str, access: str, **changed: object) -> None:
    facts = {
        "name": name,
        "source": "/data/private/place",
        "revision": "local",
        "access": access,
        "sample": False,
        "complete": True,
        "rows": 1,
        "images": 1,
        "text_sha256": "0",
        "pixels_sha256": "0",
    }
    folder = home / "datasets" / name
    folder.mkdir(parents=True, exist_ok=True)
    Manifest(**(facts | changed)).write(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    return tmp_path


# ---- private text ----


@dataclass
class Holder:
    text: PrivateText


def test_private_text_shows_a_digest_however_it_is_turned_into_text():
    text = PrivateText("Severe cardiomegaly. \ud800 é")
    shown = [
        str(text),
        repr(text),
        f"{text}",
        f"{text:>80}",
        "%s" % text,  # noqa: UP031
        json.dumps({"reply": [text]}, default=str),
        repr({"reply": text}),
        str(asdict(Holder(text))),
        str(Holder(text)),
    ]
    for form in shown:
        assert "withheld (sha256 " in form
        assert "cardiomegaly" not in form
    assert not isinstance(text, str)
    assert text.text == "Severe cardiomegaly. \ud800 é"


def test_private_text_travels_and_compares_by_content():
    text = PrivateText("effusion")
    for copied in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text), PrivateText("effusion")):
        assert copied == text
        assert hash(copied) == hash(text)
        assert copied.text == "effusion"
    assert text != PrivateText("Effusion")
    assert text != "effusion"
    assert len({text, PrivateText("effusion"), PrivateText("")}) == 2


# ---- which datasets ----


def test_catalogued_datasets_are_private_by_their_access(home):
    for name, info in CATALOGUE.items():
        assert is_private(name) == (info.access is Access.CREDENTIALED)
    assert is_private(CREDENTIALED)
    assert not is_private("mediconfusion")


def test_own_datasets_are_private_as_their_owner_said(home):
    write_manifest(home, "mine", "credentialed")
    write_manifest(home, "yours", "public")
    assert (is_private("mine"), is_private("yours")) == (True, False)
    write_manifest(home, "yours", "credentialed", rows=2)
    assert is_private("yours")
    write_manifest(home, "yours", "gated", rows=3)
    assert not is_private("yours")
    (home / "datasets" / "mine" / "manifest.json").write_text("{")
    assert is_private("mine")


@pytest.mark.parametrize("name", ["nobody_knows_it", "", "../mine", "a\0b", "x" * 5000])
def test_what_nobody_knows_is_private(home, name):
    assert is_private(name)


def test_the_user_may_name_datasets_to_show(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", f"other, {CREDENTIALED} ")
    assert not is_private(CREDENTIALED)
    assert is_private("multimedeval_vindr_mammo")
    for misunderstood in ("1", "true", "all", "*", f"{CREDENTIALED}_5shot", CREDENTIALED.upper(), ""):
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", misunderstood)
        assert is_private(CREDENTIALED)


# ---- what hooks return ----

SHARED = {"doc_id": "p10/s5", "image_id": "scan-7", "patient_id": "10000032", "image_files": ["images/p10.jpg"]}
FAMILIES = {
    "choice": (choice, {"question": "Q zyz", "options": ["zyz a", "zyz b"], "answer": "B"}, "robust_choice"),
    "open": (open_questions, {"question": "Q zyz", "answer": "zyz"}, "robust_vqa"),
    "class": (classification, {"options": ["zyz a", "zyz b"], "label": 1}, "robust_class"),
    "labels": (multilabel, {"options": ["zyz a", "zyz b"], "labels": [1, 0]}, "robust_labels"),
    "pairs": (
        pairs,
        {"question": "Q zyz", "options": ["zyz a", "zyz b"], "answer": "A", "pair_id": "17", "position": 1}
        | {"categories": ["cerebral"]},
        "robust_choice",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reply", ["zyz b", "", "[[medtasks:adapter_failed]] zyz"])
def test_every_family_withholds(home, family, reply):
    hooks, fields, rule = FAMILIES[family]
    doc = {**SHARED, **fields, "dataset": CREDENTIALED}
    returned = hooks.process_results(doc, [tagged(reply, rule)])
    names = {entry["metric"] for entry in hooks.METRIC_LIST}
    assert dict(returned.items()).keys() == names  # what the harness takes for metrics
    sample: dict[str, object] = dict.fromkeys(WRITTEN, "zyz")
    sample.update(returned)
    assert sample.keys() == names | set(WRITTEN)
    written = json.dumps(sample, default=str)
    for secret in ("zyz", "p10", "scan-7", "10000032"):
        assert secret not in written
    open_doc = doc | {"dataset": "mediconfusion"}
    shown = hooks.process_results(open_doc, [tagged(reply, rule)])
    assert shown.keys() == names
    for metric in hooks.METRIC_LIST:  # ids that are hashed cluster as clear ones do
        both = [[found[metric["metric"]]] * 3 for found in (returned, shown)]
        assert repr(metric["aggregation"](both[0])) == repr(metric["aggregation"](both[1]))


def test_open_data_are_not_touched(home):
    entry = {"sample": "s5"}
    for doc in ({"dataset": "mediconfusion", "doc_id": "1"}, {"doc_id": "1"}, {"doc_id": "1", "dataset": None}):
        assert withhold(doc, ["reply"], {"accuracy": entry})["accuracy"] is entry
        assert withhold(doc, ["reply"], {"accuracy": entry}).keys() == {"accuracy"}
    assert not (home / "replies").exists()


def test_ids_are_hashed_alike_for_all_metrics_and_records_stay_one():
    entry = {"sample": "s5", "pair_id": "17", "image_id": None, "unit": "patient-0", "key": "A", "score": 0.5}
    hidden = hidden_ids({"accuracy": entry, "invalid_rate": entry, "count": 3})
    assert hidden["accuracy"] is hidden["invalid_rate"]
    assert hidden["accuracy"] == entry | {"sample": hidden_id("doc", "s5"), "pair_id": hidden_id("pair", "17")}
    assert hidden["count"] == 3
    assert entry["sample"] == "s5"


@pytest.mark.parametrize(
    ("results", "in_words"),
    [
        (["zyz"], True),
        ([tagged("zyz", "robust_choice")], True),
        (["first zyz", "second zyz"], True),  # several replies kept by a filter
        ([{"rule": "untied", "loss": 1.0, "is_greedy": False}] * 2, False),
        (["(1.5, False)", "(nan, False)"], False),
        ([(1.5, False), (2.0, True)], False),
        (["(1.5, False)", "zyz"], True),
    ],
)
def test_likelihoods_say_nothing_and_stay(home, results, in_words):
    returned = withhold({**SHARED, "dataset": CREDENTIALED}, results, {})
    assert ("resps" in returned, "filtered_resps" in returned) == (in_words, in_words)
    assert (home / "replies").exists() == in_words


def test_withheld_samples_fit_what_the_harness_writes(home):
    sample = {"resps": [["zyz"]], "filtered_resps": ["zyz"], "arguments": ["zyz", 3], "doc": {"a": "zyz"}}
    sample |= {"target": "zyz", "input_media": ["images/p10.jpg"], "doc_id": 3}
    sample.update(without_scoring({**SHARED, "dataset": CREDENTIALED}, ["zyz"]))
    assert sample["arguments"][0] == sample["resps"][0][0] == sample["filtered_resps"][0]
    assert sample["doc_id"] == 3
    assert "zyz" not in str(sample)
    assert sample["bypass"] == 0


# ---- messages and results ----


def test_a_missing_image_is_not_named(home):
    write_manifest(home, CREDENTIALED, "credentialed")
    with pytest.raises(SourceError, match=f"data prepare {CREDENTIALED}") as raised:
        images({**SHARED, "dataset": CREDENTIALED})
    assert "p10" not in str(raised.value)
    assert raised.value.__suppress_context__
    write_manifest(home, "mediconfusion", "public")
    with pytest.raises(SourceError, match=r"images/p10\.jpg of sample p10/s5 is missing"):
        images({**SHARED, "dataset": "mediconfusion"})


def test_results_do_not_say_what_was_left_out(home, monkeypatch):
    noted = {"left_out": ("row 3: its image p10/s5.jpg is missing", "row 4: its image p11/s6.jpg is missing")}
    write_manifest(home, CREDENTIALED, "credentialed", **noted)
    write_manifest(home, "mine", "credentialed", **noted)
    for name in (CREDENTIALED, "mine"):
        facts = provenance(name)
        assert facts["left_out"] == ["2 notes in its manifest.json"]
        assert "p10" not in str(facts)
        assert "/data/private" not in str(facts)
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "mine")
    assert provenance("mine")["left_out"][0].startswith("row 3")
    write_manifest(home, "mediconfusion", "public", **noted)
    assert provenance("mediconfusion")["source"] == "/data/private/place"
