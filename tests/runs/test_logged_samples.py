"""What the harness writes of a sample: one score, nothing of a credentialed record, and no secret of a run."""

import copy
import json
import pickle
import sys
from dataclasses import asdict, dataclass

import pytest
from loguru import logger

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import provenance
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.privacy import PrivateText, hidden_id, is_private
from medtasks.errors import SourceError
from medtasks.families.family import Rule
from medtasks.prompts.images import images
from medtasks.runs.logged_samples import make_logged_sample, without_scoring
from medtasks.runs.redaction import (
    is_secret_name,
    redact,
    redact_log,
    redacted_arguments,
    redacted_options,
    redacted_streams,
    redacted_values,
    settings,
    without_home,
)
from medtasks.runs.reply_envelope import make_envelope
from medtasks.tasks.task_index import DottedName

from ..tables import each_row

CREDENTIALED = "multimedeval_mednli"
WRITTEN = (
    "doc",
    "target",
    "arguments",
    "resps",
    "filtered_resps",
    "input",
    "input_media",
)  # by the harness


def write_manifest(home, name, access, **changed):
    facts = {
        "name": name,
        "source": "/data/private/place",
        "revision": "local",
        "access": access,
        "sample": False,
    }
    facts |= {
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
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    return tmp_path


# ---- private text, and which datasets ----


@dataclass
class Holder:
    text: PrivateText


SECRET_TEXT = "Severe cardiomegaly. \ud800 é"


def test_private_text_shows_only_its_digest():
    text = PrivateText(SECRET_TEXT)
    forms = [str(text), repr(text), f"{text}", f"{text:>80}", "%s" % text]  # noqa: UP031
    forms += [
        json.dumps({"reply": [text]}, default=str),
        repr({"reply": text}),
        str(asdict(Holder(text))),
    ]

    for form in forms:
        assert "withheld (sha256 " in form
        assert "cardiomegaly" not in form


def test_private_text_compares_by_content():
    text = PrivateText(SECRET_TEXT)

    for copied in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
        assert (copied, hash(copied), copied.text) == (text, hash(text), SECRET_TEXT)
    assert PrivateText("effusion") not in (PrivateText("Effusion"), "effusion")


def test_credentialed_datasets_are_private(home):
    for name, info in CATALOGUE.items():
        assert is_private(name) == (info.access is Access.CREDENTIALED)
    for access, private in (("public", False), ("credentialed", True), ("gated", False)):
        write_manifest(home, "mine", access, rows=len(access))
        assert is_private("mine") == private


def test_a_dataset_of_unknown_access_is_private(home):
    write_manifest(home, "mine", "public")
    (home / "datasets" / "mine" / "manifest.json").write_text("{")

    for unknown in ("mine", "nobody_knows_it", "", "../mine", "a\0b", "x" * 5000):
        assert is_private(unknown)


def test_the_owner_may_allow_the_text_of_a_dataset(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", f"other, {CREDENTIALED} ")
    assert (is_private(CREDENTIALED), is_private("multimedeval_vindr_mammo")) == (False, True)


def test_only_the_exact_name_allows_the_text_of_a_dataset(home, monkeypatch):
    for misunderstood in (
        "1",
        "true",
        "all",
        "*",
        f"{CREDENTIALED}_5shot",
        CREDENTIALED.upper(),
        "",
    ):
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", misunderstood)
        assert is_private(CREDENTIALED)


# ---- what hooks return ----

SHARED = {
    "doc_id": "p10/s5",
    "image_id": "scan-7",
    "patient_id": "10000032",
    "image_files": ["images/p10.jpg"],
}
FAMILIES = {
    "choice": (
        "choice",
        {"question": "Q zyz", "options": ["zyz a", "zyz b"], "answer": "B"},
        "robust_choice",
    ),
    "open": ("open_questions", {"question": "Q zyz", "answer": "zyz"}, "robust_vqa"),
    "class": ("classification", {"options": ["zyz a", "zyz b"], "label": 1}, "robust_class"),
    "labels": (
        "multilabel",
        {"options": ["zyz a", "zyz b"], "labels": [1, 0]},
        "robust_labels",
    ),
}
FAMILIES["pairs"] = (
    "pairs",
    FAMILIES["choice"][1] | {"pair_id": "17", "position": 1, "categories": ["c"]},
    "robust_choice",
)


@each_row("family", FAMILIES)
@each_row("reply", ["zyz b", "", "[[medtasks:adapter_failed]] zyz"])
def test_every_family_withholds(tmp_path, monkeypatch, family, reply):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    module, fields, rule = FAMILIES[family]
    process = DottedName(f"medtasks.hooks.{module}.process_results").resolve()
    metrics = DottedName(f"medtasks.hooks.{module}.METRIC_LIST").resolve()
    doc = {**SHARED, **fields, "dataset": CREDENTIALED}
    returned = process(doc, [make_envelope(reply, Rule(rule))])
    names = {entry["metric"] for entry in metrics}
    assert dict(returned.items()).keys() == names  # what the harness takes for metrics
    sample: dict[str, object] = dict.fromkeys(WRITTEN, "zyz")
    sample.update(returned)
    assert sample.keys() == {"score", *WRITTEN}
    written = json.dumps(sample, default=str)
    for secret in ("zyz", "p10", "scan-7", "10000032"):
        assert secret not in written
    shown = process(doc | {"dataset": "mediconfusion"}, [make_envelope(reply, Rule(rule))])
    assert shown.keys() == {"score"}
    for entry in metrics:  # ids that are hashed cluster as clear ones do
        both = [[found[entry["metric"]]] * 3 for found in (returned, shown)]
        assert repr(entry["aggregation"](both[0])) == repr(entry["aggregation"](both[1]))


def test_logged_ids_of_samples_are_hashed():
    score = {
        "sample": "s5",
        "pair_id": "17",
        "image_id": None,
        "cluster_id": "patient-0",
        "target": "A",
        "n": 3,
    }
    found = make_logged_sample(
        {"dataset": CREDENTIALED}, ["zyz"], ["accuracy", "invalid_rate"], score
    )
    assert found["accuracy"] is found["invalid_rate"]
    assert found["accuracy"] == score | {
        "sample": hidden_id("doc", "s5"),
        "pair_id": hidden_id("pair", "17"),
    }
    assert score["sample"] == "s5"


def test_a_sample_holds_its_score_once_however_many_metrics():
    score = {
        "sample": "s5",
        "target": "A",
        "value": "A",
        "reason": "ok",
        "reference": PrivateText("effusion"),
    }
    few, many = (
        make_logged_sample({}, ["x"], [f"m{n}" for n in range(number)], score)
        for number in (1, 60)
    )
    assert [json.dumps(dict.copy(sample)) for sample in (few, many)] == [
        json.dumps({"score": few["score"]})
    ] * 2
    assert few["score"]["schema_version"] == 2
    assert "effusion" not in json.dumps(few["score"])
    assert [value for _, value in many.items()] == [score] * 60


@each_row(
    "results, in_words",
    [
        (["zyz"], True),
        ([make_envelope("zyz", Rule("robust_choice"))], True),
        (["first zyz", "second zyz"], True),  # several replies kept by a filter
        ([{"rule": "untied", "loss": 1.0, "is_greedy": False}] * 2, False),
        (["(1.5, False)", "(nan, False)"], False),
        ([(1.5, False), (2.0, True)], False),
        (["(1.5, False)", "zyz"], True),
    ],
)
def test_only_replies_in_words_are_withheld(tmp_path, monkeypatch, results, in_words):
    monkeypatch.setenv("MEDTASKS_HOME", str(home := tmp_path))
    doc = {**SHARED, "dataset": CREDENTIALED}
    for returned in (make_logged_sample(doc, results, [], {}), without_scoring(doc, results)):
        assert ("resps" in returned, "filtered_resps" in returned) == (in_words, in_words)
    assert (home / "replies").exists() == in_words
    if isinstance(results[0], str) and len(results) == 1:
        fields = {"options": ["zyz a", "zyz b"], "answer": "B"}
        DottedName("medtasks.hooks.choice.process_results").resolve()(
            {**doc, **fields, "doc_id": "scored"}, results
        )
        assert [
            path
            for path in (home / "replies").rglob("*.jsonl")
            if '"scored"' in path.read_text()
        ]


# ---- messages and results ----


@pytest.fixture
def noted_datasets(home):
    """Prepared datasets whose manifests name the images that were left out."""
    noted = {
        "left_out": (
            "row 3: its image p10/s5.jpg is missing",
            "row 4: its image p11/s6.jpg is missing",
        )
    }
    for name, access in (
        (CREDENTIALED, "credentialed"),
        ("mine", "credentialed"),
        ("mediconfusion", "public"),
    ):
        write_manifest(home, name, access, **noted)


def test_a_missing_image_is_named_only_of_public_data(noted_datasets):
    with pytest.raises(SourceError, match=f"data prepare {CREDENTIALED}") as raised:
        images({**SHARED, "dataset": CREDENTIALED})
    assert "p10" not in str(raised.value)
    assert raised.value.__suppress_context__
    with pytest.raises(SourceError, match=r"images/p10\.jpg of sample p10/s5 is missing"):
        images({**SHARED, "dataset": "mediconfusion"})


def test_rows_that_were_left_out_are_only_counted(noted_datasets):
    for name in (CREDENTIALED, "mine"):
        facts = provenance(name)
        assert facts["left_out"] == ["2 notes in its manifest.json"]
        assert "p10" not in str(facts)
        assert "/data/private" not in str(facts)


def test_rows_that_were_left_out_are_named_if_the_owner_allows_it(noted_datasets, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "mine")

    assert provenance("mine")["left_out"][0].startswith("row 3")


def test_the_source_of_public_data_is_named(noted_datasets):
    assert provenance("mediconfusion")["source"] == "/data/private/place"


SECRETS = (
    *(
        "model=m,api_key=PLANTED,max_new_tokens=8",
        "openai_api_key='PLANTED and more',x=1",
        "token=Bearer PLANTED",
    ),
    *(
        'headers={"Authorization": "Bearer PLANTED.more", "x": 1}',
        "hub_results_org=me,token=PLANTED",
    ),
    *("base_url=https://user:PLANTED@host/v1", "base_url=https://host/v1?api_key=PLANTED&x=1"),
    *(
        "--wandb-secret=PLANTED",
        "db_password=PLANTED,a=b",
        "x=sk-proj-PLANTED0123456789abc",
        "hf_PLANTED0123456789",
    ),
    *(
        "my-sk-model-sk-PLANTED0123456789abc",
        "x-eyJPLANTED0123-eyJ0123.PLANTED.abc",
        "AIzaPLANTED0123456789012345678",
    ),
    *(
        "api_key_2=PLANTED",
        '{"secret_value": "PLANTED"}',
        "DB_PASSWORD1: PLANTED",
        "Key sk-PLANTED***********wxyz.",
    ),
    *(
        "ghp_PLANTED0123456789012345",
        "api_key=none-PLANTED",
        "password=<PLANTED>",
        "token=<x>PLANTED",
    ),
)
OTHERS = (
    "pretrained=org/name,max_new_tokens=8,token_counts=true,tokenizer=org/t,batch_tokens=100",
    *(
        "pretrained=/models/sk-medical-assistant,device_map=auto",
        "base_url=http://127.0.0.1:8000/v1,model=gpt-4o",
    ),
    *(
        "project=medical,job_type=eval,name=keyless run",
        "revision=0123456789012345678901234567890123456789",
    ),
    *(
        "set API_KEY=<your key> (a local server needs none)",
        "HF_TOKEN=<token>,x=1",
        "any text such as api_key=none",
    ),
)


def test_secrets_are_redacted():
    assert [
        text for text in SECRETS if "PLANTED" in redact(text) or "***" not in redact(text)
    ] == []


def test_texts_without_a_secret_stay():
    assert [text for text in OTHERS if redact(text) != text] == []


def test_secrets_in_values_of_json_go_by_their_names():
    config = {
        "api_key": "PLANTED",
        "auth": {"user": "PLANTED"},
        "token": True,
        "pretrained": "org/name",
        "limit": 8,
    }
    nested = {
        "extra_body": config,
        "url": "http://me:PLANTED@host/v1",
        "keys": ["token=PLANTED", None],
    }
    hidden = {**config, "api_key": "***", "auth": "***"}
    assert redacted_values(nested) == {
        "extra_body": hidden,
        "url": "http://***@host/v1",
        "keys": ["token=***", None],
    }


def test_lines_of_the_log_are_redacted(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "PLANTED-VALUE")
    lines = []
    sink = logger.add(lines.append, format="{message}")
    redact_log()
    try:
        logger.info("Evaluation tracker args: {}", {"token": "PLANTED-VALUE"})
        logger.opt(colors=True).warning("<red>\x1b]0;title\x07 PLANTED-VALUE</red>")
    finally:
        logger.remove(sink)
        logger.configure(patcher=lambda record: None)
    assert list(map(str, lines)) == [
        "Evaluation tracker args: {'token': ***}\n",
        "?]0;title? ***\n",
    ]


def test_standard_streams_are_redacted(monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "PLANTED-VALUE")

    with redacted_streams():
        print("api_key=PLANTED,x=1", "PLANTED-VALUE")  # noqa: T201
        print(sys.stdout.isatty(), "token: PLANTED", file=sys.stderr)  # noqa: T201

    assert capsys.readouterr() == ("api_key=***,x=1 ***\n", "False token: ***\n")


def test_secrets_of_the_environment_anywhere(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "PLANTED-VALUE")
    monkeypatch.setenv("SHORT_TOKEN", "a")
    monkeypatch.setenv("PWD", "/work/here")  # the working folder is no password
    assert redact("run=PLANTED-VALUE-a") == "run=***-a"
    assert redact("pretrained=/work/here/model") == "pretrained=/work/here/model"
    text = "model=m,api_key=PLANTED,headers={'X-Token': 'b c'}"
    assert redact(redact(text)) == redact(text)


def test_a_secret_that_is_an_argument_of_its_own_is_redacted():
    given = [
        "--api-key",
        "PLANTED",
        "--model",
        "m",
        "--hf_token",
        "PLANTED",
        "--seed",
        "1",
        "--key=PLANTED",
    ]
    hidden = (
        "--api-key",
        "***",
        "--model",
        "m",
        "--hf_token",
        "***",
        "--seed",
        "1",
        "--key=***",
    )

    assert redacted_arguments(given) == hidden


def test_the_data_folder_is_named_by_its_variable(monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", "/clinic/patients")

    assert (
        without_home("/clinic/patients/datasets/x is damaged")
        == "$MEDTASKS_HOME/datasets/x is damaged"
    )
    assert redacted_arguments(["--output_path", "/clinic/patients/out"]) == (
        "--output_path",
        "$MEDTASKS_HOME/out",
    )


def test_settings_that_may_be_private_are_redacted(tmp_path):
    public = {
        "MEDTASKS_JUDGE_MODEL": "gpt-4o",
        "MEDTASKS_JUDGE_BASE_URL": "http://127.0.0.1:1/v1",
    }
    public |= {"MEDTASKS_LOG_TEXT": "mimic"}
    private = {"MEDTASKS_HOME": "/clinic/patients", "MEDTASKS_WEIGHTS": str(tmp_path)}
    private |= {"MEDTASKS_JUDGE_API_KEY": "PLANTED"}
    assert settings(public | private | {"HF_TOKEN": "PLANTED"}) == public | dict.fromkeys(
        private, "***"
    )


def test_secrets_in_options_are_redacted():
    given = {
        "limit": 0.5,
        "log_samples": True,
        "wandb_args": "api_key=PLANTED,project=x",
        "hf_token": "PLANTED",
    }
    hidden = {
        "limit": "0.5",
        "log_samples": "True",
        "wandb_args": "api_key=***,project=x",
        "hf_token": "***",
    }

    assert redacted_options(given) == hidden


def test_names_of_secrets_are_told_from_other_names():
    secret = (
        "HF_TOKEN",
        "api-key",
        "apiKey",
        "MEDTASKS_JUDGE_API_KEY",
        "password",
        "Authorization",
    )
    plain = ("max_tokens", "tokenizer", "token_counts", "keys", "MEDTASKS_HOME")
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []
