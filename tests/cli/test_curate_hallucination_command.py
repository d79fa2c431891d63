"""``medtasks curate hallucination`` against an LLM that replies well, badly, slowly, not at all, or will not."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from loguru import logger
from PIL import Image

from medtasks.curate.drafts import DraftOutcome, read_drafts, read_journal_lines, tally
from medtasks.curate.study import DRAFTS, STUDY, StudyKind, read_images
from medtasks.data.document_store import load_documents
from medtasks.home import home
from medtasks.judges.judge_client import JudgeSettings

from ..iu_xray_sources import put_r2gen

MASS = {"question": "Is there a mass in the image?", "answer": "No"}
EDEMA = {"question": "What does edema indicate?", "answer": "Fluid in the lung."}
BINARY = {**MASS, "type": "type_3", "ground_truth_type": "binary", "choices": ""}
CHOICE = {
    "question": "Which organ is it?",
    "answer": "B. Lung",
    "choices": "A. Heart, B. Lung, C. Liver",
}
COMPONENTS = {"anatomy": ["lung"], "measurement": [], "symptom": ["edema"]}
GOOD = {
    "visual_closed": [
        {**CHOICE, "type": "type_1", "ground_truth_type": "multi-choice"},
        BINARY,
        {**BINARY, "question": "Is there edema?", "answer": "Yes"},
        {**BINARY, "question": "Is air seen?", "answer": "Yes"},
        {**BINARY, "question": "Is edema in the report?"},
    ],
    "visual_open": {
        "question": "List your findings.",
        "answer": "Edema.",
        "Structured_Answer": COMPONENTS,
    },
    "knowledge_closed": {
        "qa_pairs": [MASS, {**MASS, "question": "Is it edema?", "answer": "Perhaps"}]
    },
    "knowledge_open": [EDEMA, EDEMA],
    "contextual": [
        MASS,
        {**MASS, "question": "Given the report, is it edema?", "answer": "Yes"},
    ],
}
DRAFTED = {
    "visual_closed": 4,
    "visual_open": 1,
    "knowledge_closed": 1,
    "knowledge_open": 1,
    "contextual": 2,
}
ROWS = {
    "good": "There is edema.",
    "bad": "MALFORMED edema.",
    "no": "REFUSED edema.",
    "late": "FAILED edema.",
}
CANARY = "zyzzyva"
PAGE = Path(__file__).parents[2] / "docs" / "curate.md"


@pytest.fixture
def reports(tmp_path):
    """Reports on four images with all that any kind needs, and a text to retrieve from."""
    (tmp_path / "data").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "data" / "secret_path.png")
    (tmp_path / "data" / "book.txt").write_text("Edema is fluid.\n")
    facts = {
        "image": "secret_path.png",
        "group": "secret_patient",
        "notes": "Cough.",
        "metadata": {"modality": "CT"},
    }
    rows = [
        {"id": f"secret_{name}", "report": report, **facts} for name, report in ROWS.items()
    ]
    path = tmp_path / "data" / "reports.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def arguments(reports, kind, out, *more):
    knowledge = (
        ["--knowledge", str(reports.with_name("book.txt"))] if kind == "knowledge_open" else []
    )
    return [
        "curate",
        "hallucination",
        str(reports),
        "--kind",
        kind,
        "--out",
        str(out),
        *knowledge,
        *map(str, more),
    ]


def script(endpoint, reply):
    """Reply as the report in a request says."""

    def choose(body):
        said = body["messages"][1]["content"]
        if "FAILED" in said and "REFUSED" not in said:
            return endpoint.status(500)
        if "return the filtered knowledge" in said:
            return endpoint.reply("Edema is fluid.")
        if "REFUSED" in said:
            return endpoint.reply("I'm sorry, but I cannot help with that.")
        return endpoint.reply(
            "Is there a mass? No." if "MALFORMED" in said else json.dumps(reply)
        )

    endpoint.choose = choose


def test_the_page_makes_a_list_of_a_prepared_dataset(medtasks, endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    source = put_r2gen(tmp_path / "source")
    assert (
        medtasks(
            "data", "prepare", "iu_xray_report", "--source", source, "--allow-incomplete"
        ).code
        == 0
    )
    (example,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    exec(compile(example, str(PAGE), "exec"), {})
    script(endpoint, GOOD["visual_open"])
    ran = medtasks(*arguments(tmp_path / "reports.jsonl", "visual_open", tmp_path / "ours"))
    assert ran.code == 0, ran.err
    images = read_images(tmp_path / "ours")
    reports = {
        document["doc_id"]: document["report"] for document in load_documents("iu_xray_report")
    }
    assert {name: image.text for name, image in images.items()} == reports


@pytest.mark.parametrize("kind", GOOD)
def test_questions_of_each_kind_are_drafted(medtasks, endpoint, reports, tmp_path, kind):
    script(endpoint, GOOD[kind])

    ran = medtasks(*arguments(reports, kind, tmp_path / "ours"))

    assert ran.code == 0, ran.err
    chains = 2 if kind == "knowledge_open" else 1
    assert (
        endpoint.count == 2 * chains + (chains - 1) + 3 + 1
    )  # good and refused, and malformed, asked three times
    lines = read_journal_lines(tmp_path / "ours")
    assert {name: line.outcome for name, line in lines.items()} == {
        "secret_good": DraftOutcome.DRAFTED,
        "secret_bad": DraftOutcome.MALFORMED,
        "secret_no": DraftOutcome.REFUSED,
        "secret_late": DraftOutcome.FAILED,
    }
    assert lines["secret_good"].llm == "m, temperature 0"
    drafts = read_drafts(tmp_path / "ours")
    assert len(drafts) == DRAFTED[kind]
    assert all(draft.images == ("secret_good",) and draft.digest for draft in drafts.values())


@pytest.mark.parametrize("kind", GOOD)
def test_the_llm_gets_reports_without_ids_and_paths(
    medtasks, endpoint, reports, tmp_path, kind
):
    script(endpoint, GOOD[kind])

    ran = medtasks(*arguments(reports, kind, tmp_path / "ours"))

    sent = json.dumps(endpoint.bodies)
    assert "There is edema." in sent
    assert "secret" not in sent
    assert "secret" not in ran.out + ran.err


@pytest.mark.parametrize("kind", GOOD)
def test_only_failed_requests_are_sent_again(medtasks, endpoint, reports, tmp_path, kind):
    script(endpoint, GOOD[kind])
    medtasks(*arguments(reports, kind, tmp_path / "ours"))
    asked = endpoint.count
    endpoint.choose = lambda body: endpoint.reply(
        "Edema." if "filtered" in str(body) else json.dumps(GOOD[kind])
    )

    ran = medtasks(*arguments(reports, kind, tmp_path / "ours"))

    chains = 2 if kind == "knowledge_open" else 1
    assert (ran.code, endpoint.count) == (0, asked + chains)
    assert "FAILED edema." in str(endpoint.bodies[-1])
    assert read_journal_lines(tmp_path / "ours")["secret_late"].outcome is DraftOutcome.DRAFTED


@pytest.fixture
def knowledge_study(medtasks, endpoint, reports, tmp_path):
    """A study of questions on retrieved knowledge, the first of which the LLM refused."""
    said = ["Useful: edema.", "I'm sorry, but I can't.", "Useful: water.", json.dumps([EDEMA])]
    endpoint.script = [endpoint.reply(text) for text in said]
    first = reports.read_text().splitlines()[0]
    reports.write_text(
        first + "\n" + json.dumps({**json.loads(first), "id": "b", "report": "Zyzzyva."}) + "\n"
    )
    assert medtasks(*arguments(reports, "knowledge_open", tmp_path / "ours")).code == 0
    return tmp_path / "ours"


def test_knowledge_is_filtered_before_questions_are_asked_for(endpoint, knowledge_study):
    filtering, asking = (
        [one["content"] for one in body["messages"]] for body in endpoint.bodies
    )
    assert "retrieved knowledge: Edema is fluid., return" in filtering[1]
    assert "JSON" not in filtering[0]
    assert "retrieved knowledge: Useful: edema.. Generate" in asking[1]
    assert asking[0].endswith('"question" and "answer", both strings.')
    prompts = {line.prompt for line in read_journal_lines(knowledge_study).values()}
    assert prompts == {"knowledge_open v1 + form_open v1"}


def test_reports_without_knowledge_are_skipped(knowledge_study):
    why = "no passage of the texts shares a word with its report"
    assert tally(knowledge_study, StudyKind.KNOWLEDGE_OPEN) == {
        ("images", DraftOutcome.REFUSED, "the LLM would not"): 1,
        ("images", DraftOutcome.SKIPPED, why): 1,
    }


def test_a_refusal_is_asked_again_of_other_texts(medtasks, endpoint, knowledge_study):
    images = knowledge_study / "images.jsonl"
    for fact in ("water", "salt"):  # what was drafted of the first stays
        images.write_text(re.sub(r"Edema is \w+\.", f"Edema is {fact}.", images.read_text()))
        assert medtasks("curate", "draft", knowledge_study).code == 0

    assert (
        "retrieved knowledge: Edema is water., return"
        in endpoint.bodies[2]["messages"][1]["content"]
    )
    assert len(endpoint.bodies) == 4
    assert (
        tally(knowledge_study, StudyKind.KNOWLEDGE_OPEN)["questions", DraftOutcome.DRAFTED, ""]
        == 1
    )


@pytest.fixture
def distant(endpoint, monkeypatch):
    """An LLM that is not on this machine."""
    monkeypatch.setattr(JudgeSettings, "is_local", False)
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "none")
    endpoint.script = [endpoint.reply(json.dumps([MASS]))]
    return endpoint


def test_credentialed_reports_reach_no_untrusted_endpoint(medtasks, distant, reports, tmp_path):
    ran = medtasks(*arguments(reports, "contextual", tmp_path / "ours"))

    assert (ran.code, distant.count) == (1, 0)
    assert "'ours' is credentialed and the judge" in ran.err
    assert not (tmp_path / "ours").exists()


def test_public_reports_reach_any_endpoint(medtasks, distant, reports, tmp_path):
    public = arguments(reports, "contextual", tmp_path / "open", "--access", "public")
    assert medtasks(*public).code == 0
    assert distant.count == len(ROWS)


def test_credentialed_reports_reach_an_endpoint_that_the_user_trusts(
    medtasks, distant, reports, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", distant.url)
    assert medtasks(*arguments(reports, "knowledge_closed", tmp_path / "ours")).code == 0
    assert distant.count == len(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["contextual", "visual_closed", "knowledge_open"])
def test_no_word_of_a_report_is_printed_logged_or_cached(
    medtasks, endpoint, tmp_path, monkeypatch, caplog, kind
):
    logged = []
    sink = logger.add(
        lambda message: logged.append(str(message)),
        level="TRACE",
        diagnose=True,
        backtrace=True,
    )
    caplog.set_level("DEBUG")

    script(endpoint, [MASS] if kind == "contextual" else GOOD[kind])
    chosen = endpoint.choose
    quoting = {
        "FAILED": endpoint.status(400, json.dumps({"error": {"message": CANARY}})),
        "FAILED REFUSED": endpoint.reply(f"{CANARY} [3]"),
    }

    def choose(body):
        found = [
            mark
            for mark in quoting
            if mark in str(body) and "return the filtered" not in str(body)
        ]
        return quoting[found[-1]] if found else chosen(body)

    endpoint.choose = choose

    data = tmp_path / "data"
    (data / CANARY).mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(data / CANARY / "a.png")
    (data / "book.txt").write_text(f"{CANARY} edema.")
    texts = {name: f"{CANARY} {name}" for name in ("notes", "metadata", "group", "licence")}
    rows = [
        {
            **texts,
            "id": f"{CANARY}{number}",
            "image": f"{CANARY}/a.png",
            "report": f"{CANARY} {report}",
        }
        for number, report in enumerate([*ROWS.values(), "FAILED REFUSED"])
    ]
    rows += [
        {**rows[0], "id": CANARY, "image": f"{CANARY}.png"},
        {**rows[0], "id": f"{CANARY}s", "report": ""},
    ]
    reports = data / "reports.jsonl"
    reports.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(
        type(sys.stderr), "isatty", lambda self: True, raising=False
    )  # with progress bars

    said = ""
    for _ in range(2):
        ran = medtasks(*arguments(reports, kind, tmp_path / "ours"))
        assert ran.code == 0
        said += ran.out + ran.err

    outcomes = Counter(line.outcome for line in read_journal_lines(tmp_path / "ours").values())
    assert outcomes == {"drafted": 1, "malformed": 2, "refused": 1, "failed": 1}
    assert "Drafting" in said
    for line in (
        json.dumps(rows[0]),
        f'{{"id": "{CANARY}"}}',
        f'{{"id": "{CANARY}',
        f'["{CANARY}"]',
    ):
        reports.write_text(f"{json.dumps(rows[0])}\n{line}\n")
        ran = medtasks(*arguments(reports, kind, tmp_path / "other"))
        assert ran.code == 1
        said += ran.out + ran.err

    logger.remove(sink)
    assert CANARY not in said + "".join(logged) + caplog.text
    cached = list(home().rglob("*.sqlite"))
    assert cached
    assert all(
        CANARY.encode() not in path.read_bytes() and path.stat().st_mode & 0o077 == 0
        for path in cached
    )
    assert CANARY in json.dumps(endpoint.bodies)

    own = [tmp_path / "ours" / name for name in (STUDY, DRAFTS, "images.jsonl")]
    assert all(path.stat().st_mode & 0o077 == 0 for path in own)
    assert CANARY not in own[0].read_text()
