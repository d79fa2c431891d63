"""Elements and text of a page."""

from html.parser import HTMLParser

Attributes = dict[str, str | None]


class Structure(HTMLParser):
    """Collects the elements of a page, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes]] = []
        self.ids: list[str | None] = []
        self.spoken: list[str] = []
        self._skipped = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self._skipped += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.spoken.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.spoken).split())

    def all(self, tag: str, **attributes: str) -> list[Attributes]:
        """Attributes of the elements with this tag that have these attributes."""
        return [
            found
            for name, found in self.elements
            if name == tag and attributes.items() <= found.items()
        ]

    @property
    def policy(self) -> str | None:
        (found,) = self.all("meta", **{"http-equiv": "Content-Security-Policy"})
        return found["content"]
