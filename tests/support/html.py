"""HTML as a browser reads it. No tests here."""

from html.parser import HTMLParser


class Seen(HTMLParser):
    """The elements of a page and its texts; nothing in them may run or have a style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._in_style = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        self.tags.append((tag, attributes))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if not self._in_style:
            self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment hides {data!r}")

    @property
    def words(self) -> str:
        """The text in one line."""
        return " ".join(" ".join(self.text).split())

    @property
    def names(self) -> set[str]:
        """The names of the elements."""
        return {tag for tag, _ in self.tags}

    @property
    def links(self) -> list[str]:
        """The targets of the links, on a page that loads nothing."""
        assert not [one for _, one in self.tags if "src" in one]
        return [str(one["href"]) for _, one in self.tags if "href" in one]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements of a name."""
        return [attributes for name, attributes in self.tags if name == tag]
