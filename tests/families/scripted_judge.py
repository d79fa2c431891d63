"""A judge whose replies are made up."""

from collections.abc import Callable
from typing import Any

from medtasks.judges.judge_client import JudgeSettings, JudgeVerdict


class ScriptedJudge:
    """Judge that replies with the text of a function of both prompts, and fails where that is None."""

    settings = JudgeSettings("http://127.0.0.1:9/v1", "m")
    label = settings.label

    def __init__(self, text: Callable[[str, str, int], str | None]) -> None:
        self.text = text
        self.asked: list[tuple[str, str, int]] = []

    def ask(
        self, system: str, user: str, parse: Any, *, prompt_version: int = 1
    ) -> JudgeVerdict[Any]:
        """Keep what is asked, and reply."""
        self.asked.append((system, user, prompt_version))
        text = self.text(system, user, prompt_version)
        return JudgeVerdict(
            None if text is None else parse(text), None if text else "no", False, text or ""
        )


def answer_in(user: str, lead: str) -> str:
    """Return the answer that a prompt shows to the judge after ``lead``."""
    return user.rpartition(lead)[2].partition("\n")[0]
