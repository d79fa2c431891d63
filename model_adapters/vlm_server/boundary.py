"""Where the question ends and the answer begins, which a chat template may blur.

An option is scored as an assistant turn that is left open. Its text has to stand directly behind the generation prompt,
as it does for a model that is loaded here; many templates put something between, or take something away.
"""

from dataclasses import dataclass

from .client import BadAnswer


class BoundaryBroken(BadAnswer):
    """An open turn is rendered otherwise than the generation prompt with the text behind it."""

    rendered: str = ""  # what the server made of it

    def __init__(self, rendered: str | None, fault: str = "does not put the answer directly behind the prompt") -> None:
        super().__init__(f"the served model's chat template {fault}")
        self.rendered = rendered or ""


@dataclass(frozen=True)
class Boundary:
    """What is done to a text so that it stands where it belongs."""

    put_before: str = ""  # what the generation prompt has and an open turn lacks
    taken_away: str = ""  # what an open turn has and the generation prompt lacks

    def sent(self, text: str) -> str:
        """Return what to send for a text; one that cannot be expressed is a BoundaryBroken."""
        if not text.startswith(self.taken_away):
            raise BoundaryBroken(None, f"begins a reply with {self.taken_away!r}, this option does not")
        return self.put_before + text.removeprefix(self.taken_away)


def remedy(prompt: str, rendered: str, text: str) -> Boundary | str:
    r"""Return what mends a broken boundary, or what the template does that nothing mends.

    Args:
        prompt: What the server renders for the question with its generation prompt.
        rendered: What it renders with ``text`` as an open assistant turn.
        text: The text.

    Example:
        >>> remedy("Q\nA:\n", "Q\nA:yes", "yes")
        Boundary(put_before='\n', taken_away='')
        >>> remedy("Q A:", "Q A:  yes", " yes")
        Boundary(put_before='', taken_away=' ')
        >>> remedy("Q A:", "Q A:yes", " yes")
        'cuts the blanks off a reply'
    """
    if rendered.endswith(text):
        opened = rendered.removesuffix(text)
        if prompt.startswith(opened):
            return Boundary(put_before=prompt.removeprefix(opened))
        added = opened.removeprefix(prompt) if opened.startswith(prompt) else ""
        if added and text.startswith(added):
            return Boundary(taken_away=added)
        return f"puts {added!r} before the reply" if added else "renders the question anew when a reply follows"
    if text.strip() and rendered.endswith(text.strip()):
        return "cuts the blanks off a reply"
    return "changes the text of a reply"
