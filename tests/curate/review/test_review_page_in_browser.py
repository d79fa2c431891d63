"""Reviewing on the page in a real browser, by keys alone."""

import contextlib
import http.server
import threading
import time

import pytest

from medtasks.curate.review.reviews import Judgement, empty_review, read_reviews
from medtasks.curate.study import read_study

from ...report.test_page_in_browser import WIDE, Reader, browser
from ..reviewed_study import pairs_study
from .test_review_server import reviewing, save, start_review

__all__ = ["browser"]  # a fixture
MET = {"correctness": True, "relevance": True, "language": True}
ESCAPE, BACKSPACE, TAB, ENTER = "\ue00c", "\ue003", "\ue004", "\ue007"
DELETE, RIGHT, CONTROL = "\ue017", "\ue014", "\ue009"


class Expert(Reader):
    """Somebody who judges drafts by keys alone."""

    def open_review(self, url):
        if self.browser.current_url.startswith(
            "http"
        ):  # a page that has something unsaved would ask
            self.run("window.onbeforeunload = null")
        metrics = {"width": WIDE[0], "height": WIDE[1], "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.browser.get("about:blank")
        for log in ("browser", "performance"):
            self.browser.get_log(log)
        self.browser.get(url)
        self.wait(lambda: self.all(".figure"))
        return self

    def wait(self, ready, seconds=300):
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until, self.one("body").text
            time.sleep(0.02)

    def wait_until_saved(self):
        self.wait(lambda: self.state_of_saving == "Saved")

    def write(self, text):
        """Replace the text that is being edited."""
        self.press_with_control("a")
        self.press(DELETE, text)

    def press_with_control(self, key):
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).key_down(CONTROL).send_keys(key).key_up(CONTROL).perform()

    @property
    def state_of_saving(self):
        return self.one("#state").text

    @property
    def alert(self):
        return self.one("#alert").text

    def pressed(self, css):
        return [
            one.get_attribute("textContent") for one in self.all(f"{css} [aria-pressed=true]")
        ]

    def images_are_shown(self):
        return self.run(
            "[...document.querySelectorAll('.shot img')].every((one) => one.naturalWidth > 0)"
        )


@pytest.fixture
def expert(browser):
    return Expert(browser)


def file_of(folder, reviewer="anna"):
    reviews = read_reviews(folder, read_study(folder))
    return {review.reviewer: review for review in reviews}[reviewer]


def test_a_study_is_reviewed_by_keys_alone_and_the_file_holds_exactly_that(expert, tmp_path):
    pairs_study(tmp_path)
    with reviewing(tmp_path) as server:
        first, second, third = (
            empty_review(server.file.drafts[item]) for item in ("p1", "p2", "p3")
        )
        expert.open_review(server.url)
        expert.press("8", "6", "n")  # both of the first pair
        expert.press("q", "x", "0", "w")  # the second: not correct, and 10 but not relevant
        expert.press("s", "i")
        expert.write("Where is the nodule?")
        expert.press(ESCAPE, "o")
        expert.write("In the left apex")
        expert.press(TAB)
        expert.write("=In the right apex")
        expert.press(ESCAPE, "t")
        expert.write("pulmonary , bone,")
        expert.press(ESCAPE, "m")
        expert.write('8 would be wrong: "q" & <b>ä</b>')
        expert.press(ESCAPE, "u", "4", "4", BACKSPACE, "3")
        expert.wait_until_saved()
        assert file_of(tmp_path).items == {
            "p1": first.model_copy(
                update={"judgements": (Judgement(score=8, **MET), Judgement(score=6, **MET))}
            ),
            "p2": second.model_copy(
                update={
                    "question": "Where is the nodule?",
                    "options": ("In the left apex", "=In the right apex"),
                    "answers": ("A", "B"),
                    "judgements": (
                        Judgement(score=1, correctness=False),
                        Judgement(score=10, **{**MET, "relevance": False}),
                    ),
                    "categories": (second.categories[0], ("pulmonary", "bone")),
                    "note": '8 would be wrong: "q" & <b>ä</b>',
                }
            ),
            "p3": third.model_copy(
                update={"judgements": (Judgement(score=4, **MET), Judgement(score=3, **MET))}
            ),
        }
        assert expert.one("#tally").text == "3 of 3 scored, 2 below 5"
        shown = expert.one("#item").text, expert.pressed("#item"), expert.state
        expert.browser.refresh()
        expert.wait(lambda: expert.all(".figure") and expert.images_are_shown())
        assert (expert.one("#item").text, expert.pressed("#item"), expert.state) == shown
        assert expert.errors() == []
        here = f"http://127.0.0.1:{server.server_port}/"
        assert all(
            url.startswith((server.url, f"{here}proof?", f"blob:{here}"))
            for url in expert.requests()
        )


def test_keys_show_captions_move_filter_enlarge_and_explain(expert, tmp_path):
    pairs_study(tmp_path, 4)
    with reviewing(tmp_path) as server:
        expert.open_review(server.url)
        for key, text in (
            ("c", "Radiograph 2"),
            ("n", "Radiograph 4"),
        ):  # captions are hidden at first
            assert text not in expert.one("body").text
            expert.press(key)
            assert text in expert.one("body").text
        expert.press("c", "p")
        assert "Radiograph" not in expert.one("body").text
        assert not (tmp_path / "reviews" / "anna.json").exists()
        tree = expert.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        controls = {"button", "textbox", "combobox", "spinbutton", "progressbar", "dialog"}
        by_role = [node for node in tree if node.get("role", {}).get("value") in controls]
        assert len(by_role) > 40
        assert [
            node["role"]["value"] for node in by_role if not node["name"]["value"].strip()
        ] == []
        expert.press("n", RIGHT, "p")
        assert expert.one("#item-id").text == "p2"
        expert.press("8", "3", "f")  # unscored
        assert expert.one("#item-id").text == "p3"
        expert.press("p")
        assert expert.one("#item-id").text == "p1"
        expert.press("f")  # below 5
        assert expert.one("#item-id").text == "p2"
        expert.press("f", "g", "4", ENTER)
        assert expert.one("#item-id").text == "p4"
        expert.press("?")
        assert expert.one("#help").is_displayed()
        expert.press("8", "?")
        assert not expert.one("#help").is_displayed()
        expert.press("z", "+", "]")
        assert expert.one("#zoomed img").is_displayed()
        assert (
            expert.run("getComputedStyle(document.documentElement).getPropertyValue('--zoom')")
            == "2"
        )
        assert "brightness(1.1)" in expert.run(
            "getComputedStyle(document.querySelector('#zoomed img')).filter"
        )
        expert.press(ESCAPE)
        expert.wait_until_saved()
        assert list(file_of(tmp_path).items) == ["p2"]
        expert.press("q", "5")
        assert "Say first that it is correct" in expert.one(".active .why").text
        expert.press("q", "5")
        assert expert.pressed(".figure:first-child .scores") == ["5"]


def test_what_cannot_be_kept_is_said_and_what_another_tab_changed_is_not_written_over(
    expert, tmp_path
):
    pairs_study(tmp_path)
    with reviewing(tmp_path) as server:
        expert.open_review(server.url)
        expert.press("o")
        expert.write("")
        expert.wait(lambda: "Question 1 is not saved: option A is empty." in expert.alert)
        assert expert.one("[data-field='options.0']").get_attribute("aria-invalid") == "true"
        assert expert.state_of_saving == "Not saved"
        expert.press(ESCAPE, "n", "7")  # others are saved meanwhile
        expert.wait(lambda: (tmp_path / "reviews" / "anna.json").exists())
        assert list(file_of(tmp_path).items) == ["p2"]
        expert.press("p", "o")
        expert.write("Both images")
        expert.wait_until_saved()
        assert expert.one("#remarks").text == "It speaks of the images."
        expert.press(ESCAPE, "r")
        expert.wait_until_saved()
        assert list(file_of(tmp_path).items) == ["p2"]
        for note, choice in (("one", "Take that version"), ("two", "Keep mine")):
            assert save(server, "p1", note=note)[0] == 200
            expert.press("m")
            expert.write("mine")
            expert.wait(lambda: "was changed elsewhere" in expert.alert)
            assert file_of(tmp_path).items["p1"].note == note
            (button,) = [
                button for button in expert.all("#alert button") if button.text == choice
            ]
            button.click()
            expert.wait_until_saved()
        assert file_of(tmp_path).items["p1"].note == "mine"
        assert expert.one("[data-field=note]").get_attribute("value") == "mine"


@contextlib.contextmanager
def impostor(port):
    """Listen at the port of a server that has ended, say yes to everything, and yield a list of all that arrives."""
    arrived = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            arrived.append(f"{self.requestline}\n{self.headers}\n{body!r}")
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield arrived
        finally:
            server.shutdown()
            thread.join()


def test_after_a_crash_an_impostor_at_the_port_gets_nothing_and_the_new_page_takes_over(
    expert, tmp_path
):
    pairs_study(tmp_path)
    process, address = start_review(tmp_path, port_is_free_at_once=True)
    expert.open_review(address)
    expert.press("9")
    expert.wait_until_saved()
    expert.run("Promise.all([...pictures.values()])")  # nothing is under way
    key = expert.run("study.key")
    process.kill()
    process.communicate()
    assert file_of(tmp_path).items["p1"].judgements[0].score == 9
    with impostor(int(address.split(":")[2].split("/")[0])) as arrived:
        expert.press("7", "n", "5", "m")
        expert.write("Mrs Example")
        expert.press(ESCAPE, "n")  # whose images were not asked for yet
        expert.wait(
            lambda: (
                "2 questions are not saved. The server has ended or does not answer"
                in expert.alert
            )
        )
        seen = len(arrived)
        expert.wait(lambda: len(arrived) > seen)  # it tries again
        assert expert.state_of_saving == "Not saved"
        assert {request.partition("?")[0] for request in arrived} == {"GET /proof"}
        assert not [
            secret
            for secret in (*address.split("/")[3:4], key, "Example", "im")
            if secret in str(arrived)
        ]
        process, again = start_review(tmp_path)
        expert.browser.execute_cdp_cmd(
            "Browser.grantPermissions", {"permissions": ["clipboardSanitizedWrite"]}
        )
        expert.one("#alert button").click()
        old = expert.browser.current_window_handle
        expert.browser.switch_to.new_window("tab")
        expert.open_review(again)
        expert.press_with_control("v")
        expert.wait(lambda: expert.one("#tally").text.startswith("1 of 3"))
        expert.wait_until_saved()
        items = file_of(tmp_path).items
        assert items["p1"].scores == (9, 7)
        assert (items["p2"].judgements[0].score, items["p2"].note) == (5, "Mrs Example")
        expert.browser.close()
        expert.browser.switch_to.window(old)
    process.kill()
    process.communicate()
