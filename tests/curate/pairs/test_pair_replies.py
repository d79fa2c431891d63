"""Reading what an LLM drafts for a pair, and the rules that a draft has to keep."""

import json

from medtasks.curate.pairs.pair_drafts import SHORTEST, PairReply, broken_rules, chosen, read_pair_reply

from ...tables import each_row, tables_of

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
    assert chosen(answer, ("Left", "Right")) == position


@each_row("question, options, answers, why", TABLES["a_draft_that_breaks_a_rule_is_rejected_and_says_why"])
def test_a_draft_that_breaks_a_rule_is_rejected_and_says_why(question, options, answers, why):
    assert [*broken_rules(PairReply(question, options, answers)), ""][0] == why


def test_released_questions_of_mediconfusion_pass_the_rules(test_data):
    records = json.loads((test_data / "mediconfusion" / "dataset.json").read_text(encoding="utf-8")).values()
    rejected = [
        record[f"{by}question"]
        for record in records
        for by in ("", "AI_")
        if broken_rules(
            PairReply(
                record[f"{by}question"],
                (record[f"{by}option_A"], record[f"{by}option_B"]),
                (record[f"{by}option_{record['im_1_correct']}"], record[f"{by}option_{record['im_2_correct']}"]),
            )
        )
    ]
    captions = [record[name] for record in records for name in ("cap_1", "cap_2")]
    assert len(rejected) <= 0.01 * 2 * len(records), rejected
    assert min(map(len, captions)) >= SHORTEST


def test_a_model_that_does_not_end_a_line_drafts_nothing():
    assert read_pair_reply(PLAIN.replace("Option1: Left", "Option1: Left" + " left" * 2000)) is None
