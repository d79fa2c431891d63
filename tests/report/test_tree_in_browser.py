"""Choosing in the tree of a dataset's groups in a real browser, and the command that comes of it."""

import itertools
import random
import re
import shlex

import pytest

from medtasks.cli.data import options
from medtasks.cli.main import app as command_line
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.selecting import choose
from medtasks.report.dataset_pages import write_tree_page
from medtasks.tasks.task_files import task_file

from .. import tiny_gmai
from .test_page_in_browser import NARROW, Reader, browser

__all__ = ["browser"]  # a fixture
OPTIONS = options()
KEYWORD = "diabetic retinopathy"


class Chooser(Reader):
    def item(self, *path):
        item = self.one("#tree")
        for label in path:
            if item.get_attribute("aria-expanded") == "false":
                item.find_element("css selector", ".label").click()
            inside = item.find_elements("css selector", ":scope > li, :scope > ul > li")
            (item,) = [one for one in inside if one.find_element("css selector", ".label").text == label]
        return item

    def tick(self, *path):
        self.item(*path).find_element("css selector", ".tick").click()

    def narrow(self, column, *values):
        (filtering,) = [one for one in self.all(".narrow") if one.text.startswith(column)]
        filtering.find_element("css selector", "summary").click()
        for label in filtering.find_elements("css selector", "label"):
            if label.text.split("\n")[0] in values:
                label.click()
        self.press("\ue00c")

    def commands(self):
        """The commands, and how many questions the page says each chooses; the wider one apart."""
        script = """((css) => [...document.querySelectorAll(css)].map((one) => [one.querySelector('code').textContent,
            Number(one.querySelector('p span').textContent.split(' ')[0].replace(',', ''))]))"""
        return self.run(f"{script}('#commands li')"), self.run(f"{script}('#notes li')")

    def random_ticks(self, rng, number):
        self.run("document.getElementById('untick').click()")
        for item in self.all("#tree li[aria-expanded=false]"):
            if rng.random() < 0.3:
                self.run("arguments[0].querySelector('.label').click()", item)
        items = self.all("#tree li")
        for item in rng.sample(items, min(number, len(items))):
            self.run("arguments[0].querySelector('.tick').click()", item)

    def ticked_number(self):
        return int(self.one("#ticked").text.split()[0].replace(",", ""))


@pytest.fixture
def chooser(browser):
    return Chooser(browser)


def criteria_of(command):
    words = shlex.split(command)
    names = {option: name for name, option in OPTIONS.items()}
    chosen = {}
    for option, value in zip(words[4::2], words[5::2], strict=True):
        column, _, text = value.partition("=") if option == "--where" else (names.get(option), "", value)
        if option != "--as":
            chosen.setdefault(column, []).append(text)
    assert None not in chosen
    return {column: tuple(values) for column, values in chosen.items()}


def written(path, documents, name="bench"):
    write_tree_page(name, documents, OPTIONS, path, selects=True, sample=False)
    return path


def check_commands(chooser, documents):
    commands, wider = (
        [({one["doc_id"] for one in choose(documents, criteria_of(command))}, number) for command, number in listed]
        for listed in chooser.commands()
    )
    assert [len(ids) for ids, _ in [*commands, *wider]] == [number for _, number in [*commands, *wider]]
    together = set().union(*(ids for ids, _ in commands))
    assert all(ids >= together for ids, _ in wider)
    return together


def test_the_walk_of_the_paper_ends_in_a_task(chooser, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    rows = [{name: row[name].replace("early glaucoma", KEYWORD) for name in row} for row in tiny_gmai.rows(150, 3)]
    tiny_gmai.write(tmp_path / "val" / "GMAI-MMBench_VAL.tsv", rows)
    prepare(CATALOGUE["gmai_mmbench_val"].name, Options(tmp_path / "val", allow_changed=True))
    ran = CliRunner().invoke(command_line, ["data", "tree", "gmai_mmbench", "--out", str(tmp_path / "tree.html")])
    assert ran.exit_code == 0, ran.output
    assert "150 questions" in ran.output
    documents = load_documents("gmai_mmbench_val")
    chooser.open(tmp_path / "tree.html")
    eyes = [one for one in documents if (one["department"], one["modality"]) == ("Ophthalmology", "Fundus Photography")]

    chooser.tick("Ophthalmology", "Fundus Photography")  # steps 1 and 2
    assert chooser.item("Ophthalmology").get_attribute("aria-checked") == "mixed"
    expected = "medtasks data select gmai_mmbench_val --department Ophthalmology --modality 'Fundus Photography'"
    assert chooser.commands()[0] == [[f"{expected} --as gmai_mmbench_val_part", len(eyes)]]

    chooser.one("#untick").click()  # step 3: its keywords
    chooser.one("#search").send_keys(f"fundus {KEYWORD}")
    chooser.tick("Ophthalmology", "Fundus Photography")
    found = [one for one in eyes if one["keyword"] == KEYWORD]
    assert chooser.ticked_number() == len(found) > 1
    assert check_commands(chooser, documents) == {one["doc_id"] for one in found}

    chooser.one("#search").clear()  # step 4: the clinical task's keywords among these
    chooser.press("\ue004")
    task = found[0]["clinical_task"]
    chooser.narrow("clinical task", task)
    chooser.one("#name").clear()
    chooser.one("#name").send_keys("Eyes!")
    assert "'Eyes!' cannot be a task's name" in chooser.one("#name-error").text
    assert chooser.commands()[0] == []
    chooser.one("#name").clear()
    chooser.one("#name").send_keys("eyes")
    ((command, number),) = chooser.commands()[0]
    assert f"--clinical-task {shlex.quote(task)}" in command
    assert f"--keyword {shlex.quote(KEYWORD)}" in command
    assert command.endswith("--as eyes")
    both = [one for one in found if one["clinical_task"] == task]
    assert number == len(both)

    chooser.one("#commands button").click()
    copied = "document.getElementById('copied').textContent"
    assert chooser.browser.execute_async_script(f"setTimeout(() => arguments[0]({copied}), 50)")
    assert chooser.run("getSelection().toString()") == command
    made = CliRunner().invoke(command_line, shlex.split(command)[1:])
    assert made.exit_code == 0, made.output
    assert f"gmai_mmbench_val: {number} of 150 questions with" in made.output
    assert load_documents("eyes") == [{**one, "dataset": "gmai_mmbench_val"} for one in both]
    assert task_file("eyes").dataset == "eyes"
    assert chooser.errors() == []
    assert [url for url in chooser.requests() if not url.startswith(("file:", "about:"))] == []


WORDS = (
    *("liver", "healthy bone", "it's", '"so"', "a, b|c", "x*", "-dash", "$HOME `id`", "früh"),
    *("Polyp", "polyp", " odd"),
)


def made_up(rng, number):
    for place in range(number):
        yield {
            "doc_id": str(place),
            "department": rng.choice(("Urology", "Ophthalmology", "None", None)),
            "modality": rng.choice(("CT", "X-ray")),
            "clinical_task": rng.choice(("Bone", "Counting", None)),
            "keyword": rng.choice((*WORDS, "Polyp", "polyp", None)),
            "granularity": rng.choice(("Box Level", "Mask Level")),
        }


def ticked_in(chooser, documents):
    """Ids of what is ticked as a reader sees it: below each ticked group that is shown."""
    script = """[...document.querySelectorAll('#tree li[aria-checked=true]')].map((item) => {
        const path = [];
        for (let one = item; one; one = one.parentElement.closest('li')) path.unshift(one.querySelector('.label'));
        return path.map((label) => label.classList.contains('missing') ? null : label.textContent);
    })"""
    paths = {tuple(path) for path in chooser.run(script)}
    levels = ("department", "modality", "clinical_task", "keyword")
    found = [(tuple(one[level] for level in levels), one["doc_id"]) for one in documents]
    return {doc_id for path, doc_id in found if any(path[:depth] in paths for depth in range(1, 5))}


def test_random_ticks_give_commands_that_choose_just_that(chooser, tmp_path):
    rng = random.Random(4)
    documents = list(made_up(rng, 260))
    left, kinds = documents, set()
    chooser.open(written(tmp_path / "tree.html", documents))
    for turn in range(18):
        if turn == 12:
            chooser.narrow("granularity", "Box Level")
            chooser.narrow("modality", "CT")
            left = [one for one in documents if (one["granularity"], one["modality"]) == ("Box Level", "CT")]
        chooser.random_ticks(rng, rng.randint(1, 8))
        ticked, chosen = ticked_in(chooser, left), check_commands(chooser, documents)
        assert len(ticked) == chooser.ticked_number()
        if len(ticked) == len(documents):
            assert "nothing to choose" in chooser.one("#why").text
            continue
        notes = chooser.one("#notes").text
        lost = re.search(r"(\d+) questions? of the ticked ones cannot", notes)
        more = re.search(r"(\d+) questions? more than ticked: the command", notes)
        assert len(ticked - chosen) == (int(lost[1]) if lost else 0)
        assert len(chosen - ticked) == (int(more[1]) if more else 0)
        kinds.add((bool(lost), bool(more), len(chooser.commands()[0]) > 1))
    assert [any(kind) for kind in zip(*kinds, strict=True)] == [True] * 3, kinds
    assert chooser.errors() == []


def test_what_is_one_product_of_values_is_one_command(chooser, tmp_path):
    cells = itertools.product(("Urology", "Oncology", "None"), ("CT", "MR", "X-ray"), ("a", "b", "c"))
    documents = [{"doc_id": str(n), "department": d, "modality": m, "keyword": k} for n, (d, m, k) in enumerate(cells)]
    chooser.open(written(tmp_path / "tree.html", documents))
    chosen = {"department": ["Oncology", "Urology"], "modality": ["CT", "X-ray"], "keyword": ["a", "c"]}
    for path in itertools.product(*chosen.values()):
        chooser.tick(*path)
    ((command, number),) = chooser.commands()[0]
    assert {name: sorted(values) for name, values in criteria_of(command).items()} == chosen
    assert number == 8
    assert chooser.one("#why").text == ""
    chooser.one("#untick").click()
    chooser.one("#search").send_keys("b")  # wherever it is
    chooser.one("#tick-shown").click()
    assert chooser.commands()[0] == [["medtasks data select bench --keyword b --as bench_part", 9]]
    chooser.one("#search").send_keys("\ue003")
    chooser.one("#tick-shown").click()
    assert chooser.commands()[0] == []
    assert "nothing to choose" in chooser.one("#why").text


def test_pairs_and_values_in_lists(chooser, tmp_path):
    rng = random.Random(2)
    areas = ("Cardiac", "Cerebral", "Spinal", "Vascular", "Pulmonary")
    documents = [
        {"doc_id": str(n), "pair_id": str(n // 2), "categories": rng.sample(areas, rng.randint(1, 3))}
        for n in range(60)
    ]
    chooser.open(written(tmp_path / "tree.html", documents))
    for size in (1, 2, 3):
        chosen = rng.sample(areas, size)
        chooser.one("#untick").click()
        for area in chosen:
            chooser.tick(area)
        ((command, number),) = chooser.commands()[0]
        assert sorted(criteria_of(command)["categories"]) == sorted(chosen)
        assert number == len(choose(documents, {"categories": chosen})) == chooser.ticked_number()


def test_the_tree_is_walked_by_keys(chooser, tmp_path):
    documents = list(made_up(random.Random(1), 200))
    chooser.open(written(tmp_path / "tree.html", documents), size=NARROW)
    first = chooser.run("document.querySelector('#tree li').focus() || document.activeElement.getAttribute('role')")
    assert first == "treeitem"
    chooser.press("\ue014", "\ue014", " ")
    assert chooser.run("document.activeElement.getAttribute('aria-level')") == "2"
    assert chooser.run("document.activeElement.getAttribute('aria-checked')") == "true"
    assert chooser.item("None").get_attribute("aria-checked") == "mixed"
    chooser.press("\ue012", "\ue012")
    assert chooser.run("document.activeElement.getAttribute('aria-expanded')") == "false"
    chooser.press("\ue010", "\ue013", "\ue011")
    assert len(chooser.all("#tree [tabindex='0']")) == 1
    assert chooser.run("document.documentElement.scrollWidth <= innerWidth")
