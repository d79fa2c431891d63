"""The page in a real browser, opened from disk as a reader opens it."""

import json
import shutil
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest

from medtasks.report.page import write_page

from . import made_up_report as made_up

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
WIDE, NARROW = (1280, 900), (400, 800)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: pip install selenium"
    )
    if not (BROWSER and DRIVER):
        pytest.skip(
            "chromium and chromedriver are not installed: apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def report(folder):
    return made_up.full_report(folder / "pictures")


@pytest.fixture(scope="module")
def full(folder, report):
    write_page(report, folder / "full.html")
    return folder / "full.html"


@pytest.fixture(scope="module")
def pairs(folder, report):
    write_page(made_up.report_of(report.tasks[0]), folder / "pairs.html")
    return folder / "pairs.html"


class Reader:
    def __init__(self, browser):
        self.browser = browser

    def open(self, path, address="", size=WIDE):
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.browser.get("about:blank")
        for log in ("browser", "performance"):
            self.browser.get_log(log)
        self.browser.get(f"file://{quote(str(path))}{address}")
        return self

    def run(self, script, *arguments):
        return self.browser.execute_script(f"return {script}", *arguments)

    def all(self, css):
        return self.browser.find_elements("css selector", css)

    def one(self, css):
        return self.browser.find_element("css selector", css)

    def press(self, *keys):
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def choose(self, field, label):
        from selenium.webdriver.support.select import Select

        found = Select(self.one(f"#{field}"))
        (text,) = [
            o.text for o in found.options if o.text == label or o.text.startswith(f"{label} (")
        ]
        found.select_by_visible_text(text)

    def type(self, text):
        self.one("#search").clear()
        self.one("#search").send_keys(text)

    @property
    def units(self):
        """Ids in the list, which is short enough to be drawn whole."""
        self.run("document.getElementById('list').style.height = '4000px'")
        self.run("window.dispatchEvent(new Event('resize'))")
        self.browser.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )
        return [row.get_attribute("title") for row in self.all(".row .id")]

    @property
    def tally(self):
        return self.one("#tally").text

    @property
    def at(self):
        return self.one(".detail h3").text

    @property
    def texts(self):
        return self.one("#detail").text

    @property
    def state(self):
        return self.run("location.hash")

    def errors(self):
        return [
            entry
            for entry in self.browser.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
        ]

    def requests(self):
        events = [
            json.loads(entry["message"])["message"]
            for entry in self.browser.get_log("performance")
        ]
        urls = [
            e["params"]["request"]["url"]
            for e in events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]


@pytest.fixture
def reader(browser):
    return Reader(browser)


def outcome_of(answer):
    return "invalid" if answer.reason != "ok" else "right" if answer.right else "wrong"


def test_the_page_opens_without_an_error_asks_for_nothing_but_itself_and_fits_the_window(
    reader, full, folder
):
    reader.open(full)
    assert reader.one("h1").text == "Made-up model on made-up tasks"
    assert "Made-up question 1" in reader.texts
    for button in reader.all(".shot img"):
        assert reader.run("arguments[0].naturalWidth", button) == 320
    assert reader.errors() == []
    assert reader.requests() == [f"file://{full}"]
    for size in (WIDE, NARROW):
        reader.open(full, size=size)
        assert reader.run("document.documentElement.scrollWidth") <= size[0]
        assert reader.run("innerWidth") == size[0]
    name = "_".join(["medevalkit", "omnimedvqa", "vlmevalkit", "reasoning"] * 2)
    task = made_up.bare_task(name)
    why = f"Left out: run --tasks {','.join([name] * 3)}"
    write_page(made_up.report_of(task, missing={f"{name}_ll": why}), folder / "long.html")
    reader.open(folder / "long.html", size=WIDE)
    table = "document.querySelector('table.summary')"
    assert reader.run(f"{table}.scrollWidth") <= reader.run(
        f"{table}.parentElement.clientWidth"
    )


def test_results_are_filtered_as_the_chosen_reading_has_them(reader, pairs, full, report):
    reader.open(pairs, "#audit")
    assert reader.units == [f"p{number}" for number in range(1, 7)]
    assert reader.tally == "12 of 12 questions, in 6 of 6 pairs"
    assert [card.get_attribute("data-id") for card in reader.all(".card")] == ["p1/1", "p1/2"]
    for rule, *shown in (
        ("reference", "wrong"),
        ("robust", "right"),
        ("robust", "invalid", "wrong"),
    ):
        reader.open(pairs, "#audit")
        reader.choose("rule", rule)
        for outcome in shown:
            reader.one(f'[data-outcome="{outcome}"]').click()
        chosen = [
            item for item in report.tasks[0].items if outcome_of(item.answers[rule]) in shown
        ]
        expected = list(dict.fromkeys(item.unit for item in chosen))
        assert reader.units == expected
        assert reader.tally == f"{len(chosen)} of 12 questions, in {len(expected)} of 6 pairs"
        assert 0 < len(expected) < 6
    reader.open(pairs, "#audit")
    for button in reader.all("#outcomes button"):
        if button.is_displayed():  # its number is what a click would show
            number = button.find_element("css selector", ".tally").text
            button.click()
            assert reader.tally.startswith(f"{number} of 12 ")
            button.click()
    reader.open(full, "#task=made_up_reports")
    reader.one('[data-outcome="scored"]').click()  # without a verdict
    assert reader.units == ["r0", "r1"]
    reader.one('[data-outcome="scored"]').click()
    reader.one('[data-outcome="invalid"]').click()
    assert reader.units == ["r2"]


def test_search_finds_text_and_filters_are_combined_and_cleared_together(reader, pairs):
    units = {
        "question 4": ["p4"],
        "**a": ["p3"],
        "onerror=": ["p6"],
        "p2/2": ["p2"],
        "A or  B": ["p5"],
        "A or B": [],
    }
    units["LOWER HALF"] = ["p1", "p2", "p3", "p4", "p5", "p6"]
    reader.open(pairs, "#audit")
    for text, expected in units.items():
        reader.type(text)
        assert reader.units == expected, text
    reader.type("question")
    reader.one('[data-outcome="right"]').click()
    reader.choose("group", made_up.AREAS[0])
    assert (reader.tally, reader.units) == ("2 of 12 questions, in 2 of 6 pairs", ["p2", "p4"])
    assert "(not in the filter)" in reader.one('.card[data-id="p2/2"]').text
    reader.one("#clear").click()
    assert reader.units == [f"p{number}" for number in range(1, 7)]


def test_keys_move_filter_and_search(reader, pairs):
    from selenium.webdriver.common.keys import Keys

    reader.open(pairs, "#audit")
    reader.press("j", "j")
    assert "p3" in reader.at
    reader.press("k")
    assert "p2" in reader.at
    reader.press(Keys.ARROW_DOWN)
    assert "p3" in reader.at
    reader.press(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP)
    assert "p1" in reader.at
    reader.press("i")
    assert reader.units == ["p3", "p4", "p5"]
    assert "p3" in reader.at
    reader.press("w")
    assert reader.units == ["p2", "p6"]
    reader.press("w", "d")
    assert reader.units == ["p3"]
    reader.press("d", "/")
    assert reader.run("document.activeElement.id") == "search"
    reader.press(*"jwd")
    assert reader.one("#search").get_attribute("value") == "jwd"
    assert reader.units == []
    reader.press(*([Keys.BACKSPACE] * 3), Keys.ESCAPE)
    assert reader.run("document.activeElement.id") == "list"
    reader.press(Keys.END)
    assert "p6" in reader.at
    selected = reader.one('[aria-selected="true"]').get_attribute("id")
    assert selected == reader.one("#list").get_attribute("aria-activedescendant")
    reader.press("?")
    assert "only wrong answers" in reader.one("#help").text
    reader.press("k")  # rests meanwhile
    assert "p6" in reader.at
    reader.press(Keys.ESCAPE)
    assert not reader.one("#help").is_displayed()


def test_the_address_restores_the_view(reader, full, pairs):
    assert reader.open(pairs).state == ""
    reader.one("#disagree").click()
    assert reader.state == "#disagree=1&id=p3"
    reader.open(full, "#audit")
    assert reader.tally.startswith("31 of 31 questions, in ")
    reader.choose("task", "mediconfusion_gd")
    assert (reader.units, reader.tally) == (["q0", "q1", "q2", "q3"], "4 of 4 questions")
    assert not reader.one("#rule").is_displayed()
    assert not reader.one("#group").is_displayed()
    reader.choose("task", "mediconfusion")
    reader.choose("rule", "robust")
    reader.one('[data-outcome="right"]').click()
    reader.choose("group", made_up.AREAS[1])
    reader.type("question")
    reader.run("document.activeElement.blur()")
    reader.press("j")
    before = reader.state, reader.units, reader.at
    assert before[1:] == (["p1", "p3"], "Pair p3 · mediconfusion · 2 of 2")
    reader.open(full, before[0])
    assert (reader.state, reader.units, reader.at) == before
    assert reader.run(
        "document.getElementById('audit').getBoundingClientRect().top < innerHeight"
    )
    # An id is shown even outside of the filters.
    for chosen in ("p4", "p4/2"):
        reader.open(
            full, "#" + urlencode({"task": "mediconfusion", "id": chosen, "show": "wrong"})
        )
        assert reader.at == "Pair p4 · mediconfusion · not in the filtered list"
        assert reader.units == ["p2", "p6"]
    reader.open(
        pairs, "#task=<b>&rule=x&show=constructor,toString&column=x&group=y&id=z&reason=q"
    )
    assert reader.errors() == []
    assert reader.units == []  # no reply has the reason q
    reader.one("#clear").click()
    assert len(reader.units) == 6


def test_numbers_of_the_validity_table_and_names_of_groups_lead_to_their_questions(
    reader, full
):
    reader.open(full)
    links = reader.all("#task-mediconfusion .counts a")
    (link,) = [
        link for link in links if "rule=robust&reason=refused" in link.get_attribute("href")
    ]
    assert link.text == "12"
    link.click()
    assert reader.units == ["p5"]
    reader.open(full)
    reader.browser.find_element("link text", made_up.AREAS[0]).click()
    assert reader.units == ["p2", "p4", "p6"]


def test_a_hostile_reply_is_text(reader, pairs):
    reader.open(pairs, "#id=p6")
    title = reader.run("document.title")
    reply = reader.run(
        "JSON.stringify(document.querySelectorAll('.card')[1].querySelector('pre').textContent)"
    )
    assert json.loads(reply) == made_up.HOSTILE
    reader.one("#whitespace").click()
    assert title == reader.run("document.title") == "Made-up model on made-up tasks"
    assert reader.all("#detail script, #detail img[onerror]") == []
    assert reader.errors() == []
    reader.open(pairs, "#id=p5")
    text = "document.querySelector('.card pre').textContent"
    for shown in ("A or  B\n\tboth", "A·or··B↵\n⇥\tboth", "A or  B\n\tboth"):
        assert reader.run(text) == shown
        reader.one("#whitespace").click()


def test_a_detail_says_what_was_asked_said_and_read(reader, pairs, full):
    reader.open(pairs, "#id=p3")
    card = reader.one('.card[data-id="p3/1"]')
    words = card.text.split("\n")
    assert {"The upper half", "**A**"} <= set(words)
    assert "✓ right answer ● model's answer (robust)" in " ".join(words)
    rows = [
        row.text.replace("\n", " ")
        for row in card.find_elements("css selector", ".readout tbody tr")
    ]
    assert rows[0].startswith("reference none: no match The reply has text")
    assert rows[0].endswith("∅ invalid")
    assert rows[1] == "robust A ✓ right"
    assert "categories: Head and Neck" in card.text
    card.find_element("css selector", "summary").click()
    assert "Look & answer with a letter: made-up question 3?" in card.text
    assert "(nothing: the reply is empty)" in reader.open(pairs, "#id=p4").texts

    reader.open(full, "#task=mediconfusion_gd&id=q3")  # likelihoods
    lines = [line.text for line in reader.all(".losses span")]
    assert lines == ["A", "1.5000", "B", "n/a", "C", "2.5000"]
    widths = [
        reader.run("parseFloat(arguments[0].style.width)", fill)
        for fill in reader.all(".losses .fill")
    ]
    assert widths == pytest.approx([100, 0, 36.79], abs=0.01)
    reader.open(full, "#task=made_up_reports&id=r0")  # scores
    assert "• score 0.125" in reader.texts
    assert "A long invented description." in reader.texts
    assert "none: judge failed" in reader.open(full, "#task=made_up_reports&id=r2").texts

    reader.open(full, "#task=multimedeval_mimic_cxr_report")  # withheld
    assert "Withheld: this dataset holds patients' data" in reader.texts
    assert len(reader.units) == 6
    assert made_up.SECRET not in reader.run("document.documentElement.outerHTML")
    assert reader.all("#detail img, #detail pre, #detail .options") == []


def test_pictures_are_enlarged_and_turned_by_key(reader, pairs):
    from selenium.webdriver.common.keys import Keys

    reader.open(pairs, "#audit")
    first, second = reader.all(".shot")
    second.click()
    assert "Picture of p1/2 · 320 × 240 pixels · 2 of 2" in reader.one("#zoom-caption").text
    assert reader.one("#zoom-picture").size["width"] > 900
    reader.press(Keys.ARROW_RIGHT)
    assert "Picture of p1/1" in reader.one("#zoom-caption").text
    source = first.find_element("css selector", "img").get_attribute("src")
    assert reader.one("#zoom-picture").get_attribute("src") == source
    reader.press(Keys.ESCAPE)
    assert not reader.one("#zoom").is_displayed()
    assert "p1" in reader.at


def test_many_questions_are_drawn_a_few_at_a_time(reader, folder):
    from selenium.webdriver.common.keys import Keys

    write_page(made_up.report_of(made_up.many_items(1_200)), folder / "crowd.html")
    reader.open(folder / "crowd.html", "#audit")
    assert reader.tally.startswith("1,200 of 1,200 questions, in 600 of 600 pairs")
    assert 0 < len(reader.all(".row")) < 60
    reader.one("#list").click()
    reader.press(Keys.END)
    assert "99/p6 " in reader.at
    assert 0 < len(reader.all(".row")) < 60
    reader.press("d")
    assert reader.tally.startswith("200 of 1,200 questions, in 100 of 600 pairs")
    reader.type("77/p3/2")
    assert reader.one(".row .id").get_attribute("title") == "77/p3"
    assert reader.errors() == []


def test_each_task_is_shown_under_its_own_main_reading_with_its_files_and_columns(
    reader, folder, report
):
    task = report.tasks[0]  # of one of whose pictures the file is missing
    first = replace(
        task, pictures={key: file for key, file in task.pictures.items() if key != "picture12"}
    )
    names = {"reference": "strict", "robust": "careful"}
    items = []
    for item in first.items:
        answers = {names[name]: answer for name, answer in item.answers.items()}
        items.append(replace(item, answers=answers, facts=("x/left.dcm", "site: north")))
    rules = tuple(replace(rule, name=names[rule.name]) for rule in first.rules)
    own = replace(first, name="own", rules=rules, items=tuple(items))
    write_page(made_up.report_of(first, own), folder / "own.html")
    reader.open(folder / "own.html", "#audit")
    assert "No picture: its file is missing." in reader.texts
    assert len(reader.all(".shot")) == 1
    wrong = sum(outcome_of(item.answers["reference"]) == "wrong" for item in first.items)
    assert reader.one("#rule option:checked").text == "main one of each task"
    assert reader.one('[data-outcome="wrong"]').text == f"✗ wrong {2 * wrong}"
    assert not reader.one('[data-outcome="unread"]').is_displayed()
    reader.choose("task", "own")
    assert reader.one("#rule option:checked").text == "strict"
    assert "x/left.dcm · site: north" in reader.texts
    reader.choose("task", "all tasks")
    reader.type("left.dcm")
    assert reader.tally.startswith("12 of 24 questions")
