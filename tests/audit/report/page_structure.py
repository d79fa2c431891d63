"""What a page holds, as a reader and a browser find it."""

from html.parser import HTMLParser


class Structure(HTMLParser):
    """Collects the elements of a page, and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.ids, self.spoken, self._skipped = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self._skipped += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._skipped -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._skipped:
            self.spoken.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.spoken).split())

    def all(self, tag, **attributes):
        """Attributes of the elements with this tag that have these attributes."""
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]

    @property
    def policy(self):
        (found,) = self.all("meta", **{"http-equiv": "Content-Security-Policy"})
        return found["content"]
