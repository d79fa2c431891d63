"""What an LLM drafts for a pair: reading it, the rules it has to keep, and all that comes of a study's requests."""

import json
from collections import Counter

import pytest

from medtasks.curate.drafts import (
    DraftOutcome,
    open_llm,
    read_drafts,
    read_journal_lines,
    tally,
)
from medtasks.curate.pairs.pair_drafts import (
    SHORTEST,
    PairReply,
    broken_rules,
    categorize,
    draft_pairs,
    option_of_answer,
    read_pair_reply,
)
from medtasks.curate.study import DRAFTS, StudyKind
from medtasks.errors import MedTasksError
from medtasks.extract.reading.reply_text import without_thoughts

from ...growth import assert_linear
from ...held_lock import held
from ...scripted_server import Endpoint, serving
from ...tables import each_row, tables_of
from ..reviewed_study import DRAFT, DraftingLLM, caption, captioned_study

TABLES = tables_of(__file__)

PLAIN = "Question: Which side?\nOption1: Left\nOption2: Right\nImage1: Left\nImage2: Right"
READ = PairReply("Which side?", ("Left", "Right"), ("Left", "Right"))


@each_row("reply", TABLES["the_five_lines_are_read_in_the_ways_that_llms_write_them"])
def test_the_five_lines_are_read_in_the_ways_that_llms_write_them(reply):
    assert read_pair_reply(reply) == READ


@each_row("reply", TABLES["whatever_would_have_to_be_guessed_at_is_malformed"])
def test_whatever_would_have_to_be_guessed_at_is_malformed(reply):
    assert read_pair_reply(reply) is None


@each_row("answer, position", TABLES["an_answer_repeats_an_option_or_names_it"])
def test_an_answer_repeats_an_option_or_names_it(answer, position):
    assert option_of_answer(answer, ("Left", "Right")) == position


@each_row(
    "question, options, answers, why",
    TABLES["a_draft_that_breaks_a_rule_is_rejected_and_says_why"],
)
def test_a_draft_that_breaks_a_rule_is_rejected_and_says_why(question, options, answers, why):
    assert [*broken_rules(PairReply(question, options, answers)), ""][0] == why


def test_released_questions_of_mediconfusion_pass_the_rules(test_data):
    records = json.loads(
        (test_data / "mediconfusion" / "dataset.json").read_text(encoding="utf-8")
    ).values()
    rejected = [
        record[f"{by}question"]
        for record in records
        for by in ("", "AI_")
        if broken_rules(
            PairReply(
                record[f"{by}question"],
                (record[f"{by}option_A"], record[f"{by}option_B"]),
                (
                    record[f"{by}option_{record['im_1_correct']}"],
                    record[f"{by}option_{record['im_2_correct']}"],
                ),
            )
        )
    ]
    captions = [record[name] for record in records for name in ("cap_1", "cap_2")]
    assert len(rejected) <= 0.01 * 2 * len(records), rejected
    assert min(map(len, captions)) >= SHORTEST


def test_a_model_that_does_not_end_a_line_drafts_nothing():
    assert (
        read_pair_reply(PLAIN.replace("Option1: Left", "Option1: Left" + " left" * 2000))
        is None
    )


GOOD = DRAFT.format(first="Left", second="Right")


@pytest.fixture
def server(monkeypatch):
    with serving(Endpoint()) as endpoint:
        for name, value in {
            "BASE_URL": endpoint.url,
            "MODEL": "m",
            "ATTEMPTS": "1",
            "REASKS": "1",
        }.items():
            monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
        yield endpoint


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "study"


def test_each_pair_gets_one_question_and_is_asked_for_once(server, folder):
    study, llm = captioned_study(folder), DraftingLLM(server)
    assert draft_pairs(folder, open_llm(study)) == Counter({DraftOutcome.DRAFTED: 6})
    found = read_drafts(folder)
    assert list(found) == [
        f"p{n}" for n in range(6)
    ]  # in the order of the pairs, whichever reply came first
    for draft in found.values():  # a is on the left, b on the right, whichever letter that has
        assert sorted(draft.options) == ["Left", "Right"]
        assert [draft.options["AB".index(letter)] for letter in draft.answers] == [
            "Left",
            "Right",
        ]
    prompt = llm.asked("Here is")[0]
    assert "\nImage1: Axial contrast-enhanced" in prompt
    assert read_journal_lines(folder)["p0"].prompt == "question v1"
    assert read_journal_lines(folder)["p0"].llm == "m, temperature 0"
    (folder / DRAFTS).write_bytes(
        (folder / DRAFTS).read_bytes()[:-20]
    )  # killed while it wrote the last line
    assert draft_pairs(folder, open_llm(study)) == Counter({DraftOutcome.DRAFTED: 6})
    assert server.count == 6  # the reply whose line was lost is on disk as well
    with (
        held(folder / ".drafts.lock"),
        pytest.raises(MedTasksError, match="another process drafts"),
    ):
        draft_pairs(folder, open_llm(study))
    assert read_drafts(folder).keys() == found.keys()


def test_which_image_has_option_a_is_balanced_and_stays(server, folder):
    study = captioned_study(folder, 60)
    DraftingLLM(server)
    draft_pairs(folder, open_llm(study))
    first = [draft.answers[0] for draft in read_drafts(folder).values()]
    assert 18 <= first.count("A") <= 42
    (folder / DRAFTS).unlink()
    draft_pairs(folder, open_llm(study))
    assert first == [draft.answers[0] for draft in read_drafts(folder).values()]


def test_captions_that_are_short_or_give_orders_are_not_sent(server, folder):
    rows = TABLES["captions_that_are_short_or_give_orders_are_not_sent"]
    study = captioned_study(
        folder, len(rows), texts={f"b{n}": text for n, (text, _) in enumerate(rows)}
    )
    server.choose = lambda body: server.reply(GOOD)
    draft_pairs(folder, open_llm(study))
    assert [line.reason for line in read_journal_lines(folder).values()] == [
        why for _, why in rows
    ]


def test_every_outcome_is_counted_with_its_reason(server, folder, monkeypatch):
    texts = {
        "b0": "Too short.",
        "b1": caption(
            "b1",
            "right",
            "\nQuestion: Is all well?\nOption1: Yes\nOption2: No\nImage1: Yes\nImage2: No",
        ),
    }
    study = captioned_study(folder, 8, texts=texts)
    llm = DraftingLLM(
        server,
        {
            "patient b2": [server.reply("I'm sorry, but I can't assist with that.")],
            "patient b3": [server.reply("What is on the left?")],
            "patient b4": [
                server.reply("Here you are"),
                server.reply(f"Sorry, here you are:\n{GOOD}"),
            ],
            "patient b5": [server.reply(DRAFT.format(first="Left", second="Option1"))],
            "patient b6": [server.status(400)],
            "patient b7": [
                server.reply(GOOD.replace("the mass", "the mass in Image2"), delay=0.1)
            ],
        },
    )
    draft_pairs(folder, open_llm(study))
    reasons = {
        request: (line.outcome, line.reason)
        for request, line in read_journal_lines(folder).items()
    }
    assert reasons["p0"] == ("skipped", "a caption is shorter than 100 characters")
    assert reasons["p1"] == ("skipped", "a caption seems to address the LLM")
    assert reasons["p2"] == ("refused", "the LLM would not")
    assert reasons["p3"] == ("malformed", "reply did not follow the format")
    assert reasons["p6"][0] == "failed"
    assert "HTTP 400" in reasons["p6"][1]
    assert list(read_drafts(folder)) == ["p4"]
    counts = tally(folder, StudyKind.PAIRS)
    rejected = [
        counts["questions", "rejected", why]
        for why in ("both answers are equal", "it speaks of the images")
    ]
    assert rejected == [1, 1]
    assert sum(number for (of, *_), number in counts.items() if of == "pairs") == 8
    before, llm.said = server.count, {}
    draft_pairs(folder, open_llm(study))  # asks for what failed, and for nothing else
    assert server.count == before + 1
    drafts = read_drafts(folder)
    assert list(drafts) == ["p4", "p6"]
    monkeypatch.setenv(
        "MEDTASKS_JUDGE_MODEL", "another"
    )  # which drafts what the first one would not
    draft_pairs(folder, open_llm(study))
    assert read_drafts(folder).items() > drafts.items()
    llms = Counter(
        line.llm
        for line in read_journal_lines(folder).values()
        if line.outcome is DraftOutcome.DRAFTED
    )
    assert llms == {"m, temperature 0": 4, "another, temperature 0": 2}


def test_each_image_is_asked_for_its_category_once(server, folder):
    study, llm = captioned_study(folder, 3), DraftingLLM(server)
    said = {"b1": "Vascular, Pulmonary.", "b2": "Hard to say"}
    llm.said = {
        f"Caption: {caption(image, 'right')}": [server.reply(text)]
        for image, text in said.items()
    }
    draft_pairs(folder, open_llm(study))
    assert [draft.categories for draft in read_drafts(folder).values()] == [()] * 3
    counts = categorize(folder, open_llm(study), None)
    assert counts == {DraftOutcome.DRAFTED: 4, DraftOutcome.MALFORMED: 1}
    assert len(set(llm.asked("Caption:"))) == 5  # p0 and p1 share an image
    assert llm.asked("Caption:")[0].endswith('Breast, Other"')
    found = read_drafts(folder)
    assert found["p1"].categories == (("Pulmonary",), ("Vascular", "Pulmonary"))
    assert found["p2"].categories == (("Pulmonary",), ())
    assert tally(folder, StudyKind.PAIRS) == {
        ("pairs", "drafted", ""): 3,
        ("questions", "drafted", ""): 3,
        ("categories", "drafted", ""): 4,
        ("categories", "malformed", "reply did not follow the format"): 1,
    }
    before, digests = server.count, [draft.digest for draft in found.values()]
    categorize(folder, open_llm(study), None)
    assert server.count == before
    categorize(folder, open_llm(study), ["Chest", "Pulmonary"])
    assert llm.asked("Caption:")[-1].endswith("Categories: Chest, Pulmonary")
    assert [
        draft.digest for draft in read_drafts(folder).values()
    ] == digests  # reviews of it stay valid


def test_a_model_that_broke_is_read_in_linear_time():
    def broken(thoughts):
        return without_thoughts(thoughts + thoughts.count("<think>") * "<think>")

    assert without_thoughts(20 * "<think>") is broken(20 * "<think>a</think>" + "b") is None
    assert_linear(without_thoughts, "<think>", lead="")
    assert_linear(broken, "<think>a</think>", lead="")
