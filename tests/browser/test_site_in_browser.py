"""The documentation site's style in a real browser: all of a long code line can be read."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent
LONGEST = "x = [" + ", ".join(f"'bean {number}'" for number in range(20)) + "]  # " + "y" * 200


@pytest.mark.parametrize("width", [390, 1280])
def test_long_code_lines_wrap_inside_their_box(browser: "Browser", width: int) -> None:
    assert 'html_css_files = ["site.css"]' in (ROOT / "docs" / "conf.py").read_text("utf-8")
    style = (ROOT / "docs" / "site.css").read_text("utf-8")
    # As the theme has it, without its colours.
    theme = "pre { font: 13px monospace; overflow: auto; padding: 10px }"
    tab = browser.new_page(viewport={"width": width, "height": 844})
    code = f'<div class="highlight-python"><div class="highlight"><pre>{LONGEST}</pre></div></div>'
    tab.set_content(f"<style>{theme}{style}</style>{code}")
    box = tab.locator("pre")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert box.inner_text() == LONGEST
    tab.close()
