"""Checklist pages: contents for a made-up report."""

import re
from dataclasses import replace

from medtasks.home import packaged_facts
from medtasks.report.checklist import AUTHORS, checklist_table, write_checklist

from ..tables import each_row
from . import made_up_report as made_up

CONTENTS = packaged_facts("medtasks.report", "checklists")
PARTS = {
    "claim": (44, {}),
    "mi-clear-llm": (8, {}),
    "stard-ai": (40, {15: "abcd", 16: "abc", 17: "ab", 26: "ab", 40: "ab"}),
    "tripod-llm": (
        19,
        {
            3: "ab",
            5: "abcde",
            6: "abcde",
            7: "abcde",
            8: "abc",
            9: "ab",
            14: "abcdef",
            16: "abcd",
            19: "abcdefg",
        },
    ),
}
PAIRED = made_up.paired_task()
SETTINGS = {
    "version": "6",
    "prompt": "templates, SHA-256 abc",
    "decoding": "temperature=0.0",
    "rows": "352",
}
TASKS = (replace(PAIRED, settings=SETTINGS), made_up.withheld_task(), made_up.grouped_task())
REPORT = made_up.report_of(*TASKS, title="<script>alert</script>")


@each_row(
    "name, parts",
    [
        (
            "claim",
            (
                "mediconfusion: mediconfusion; public; fingerprint 0123456789ab",
                "set_accuracy (robust) 22.5% [",
            ),
        ),
        (
            "stard-ai",
            (
                "temperature=0.0",
                "categories (robust): Cerebral (100) 10.0%",
                "1,000 of 4,550 samples",
            ),
        ),
        (
            "tripod-llm",
            (
                "With the image of another question (mediconf",
                "robust_rule v1, Reads the letter",
            ),
        ),
        (
            "mi-clear-llm",
            (
                "model: made_up_model: size=<small>",
                "SHA-256 abc",
                "; it comes from medtasks run --rep",
            ),
        ),
    ],
)
def test_an_item_has_a_value_or_what_records_it_or_is_left_to_the_authors(
    name, parts, tmp_path
):
    (count, letters), items = PARTS[name], CONTENTS["checklists"][name]["items"]
    numbers = [
        f"{n}{letter}" for n in range(1, count + 1) for letter in letters.get(n, "") or [""]
    ]
    table = checklist_table(REPORT, name)
    assert [row[0].text for row in table.rows] == numbers
    for (item, _, keys, rest), row in zip(items, table.rows, strict=True):
        lines = row[2].text.splitlines()
        assert (AUTHORS in lines[-1]) == bool(rest or not keys), item
        assert len(lines) >= len(keys.split()) + bool(rest or not keys), item
    text = "\n".join(row[2].text for row in table.rows)
    assert [part for part in parts if part not in text] == []
    write_checklist(REPORT, name, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "It is no statement of compliance" in page
    assert not re.search(rf"compli(es|ant)|fulfil|meets|<script>alert|{made_up.SECRET}", page)


def test_every_fact_is_known_and_used():
    used = {
        key
        for one in CONTENTS["checklists"].values()
        for *_, keys, _ in one["items"]
        for key in keys.split()
    }
    assert used == CONTENTS["facts"].keys()


def test_a_primary_outcome_is_named():
    facts = {
        **REPORT.facts,
        "primary outcome": "accuracy of gmai, margin 0.1, needed for margin 377",
    }
    rows = {
        row[0].text: row[2].text
        for row in checklist_table(replace(REPORT, facts=facts), "stard-ai").rows
    }
    assert "needed for margin 377." in rows["22"]
    assert (
        "comes from medtasks run --primary" in checklist_table(REPORT, "claim").rows[20][2].text
    )
