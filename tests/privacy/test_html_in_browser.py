"""The report's page in a real browser without network, on a phone and a desk, by day and night."""

import pytest

from tests.browser import running_browser
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.report import build_report

HOSTILE = """</ul></div><script>document.title = "taken over"</script><img src=http://a.example>"""
LONG = "a_name_without_blanks_" * 20

# Every piece of text that is shown: its size on the screen, and its contrast as WCAG 2 has it.
TEXTS = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const scale = element.ownerSVGElement ? element.getScreenCTM().a : 1;
    const ink = light(element.ownerSVGElement ? style.fill : style.color);
    const paper = light(behind(element));
    found.push({text, size: scale * parseFloat(style.fontSize),
      contrast: (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)});
  }
  return found;
})()
"""
OVERHANGING = """
[...document.querySelectorAll("main *")].filter(
  element => element.getBoundingClientRect().right > innerWidth + 0.5
).map(element => element.outerHTML.slice(0, 80))
"""
CURVES = """
[...document.querySelectorAll("svg polyline")].map(
  line => ({length: line.getTotalLength() * line.getScreenCTM().a,
    stroke: getComputedStyle(line).stroke, drawn: line.checkVisibility()}))
"""


@pytest.fixture(scope="module")
def browser():
    with running_browser() as started:
        yield started


@pytest.fixture(scope="module")
def report():
    plan = PrivacyPlan(60_000, 256, 400, 0.5, epsilon=3.0, delta=1e-5)
    ledger = Ledger()
    for noise in (plan.settings, plan.settings.__class__(60_000, 256, 2.0, 0.5)):
        for _ in range(195):
            ledger.record(noise)
    return build_report(
        plan, ledger, unit="one picture with its caption", counts={LONG: 3}, notes=[HOSTILE, LONG]
    )


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "privacy_report.html"
    report.write_html(path)
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_reads_well(browser, page, width, dark):
    browser.open(page, width, dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OVERHANGING) == []
    texts = browser.evaluate(TEXTS)
    assert len(texts) > 100
    assert [t for t in texts if t["size"] < 12] == []
    assert [t for t in texts if t["contrast"] < 4.5] == []


def test_it_opens_offline_and_asks_for_nothing_runs_nothing_complains_of_nothing(browser, page):
    browser.open(page, 390)
    assert browser.evaluate("document.title") == "Privacy report"
    asked = [p["request"]["url"] for m, p in browser.events if m == "Network.requestWillBeSent"]
    assert asked == [page.as_uri()]
    complaints = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert [event for event in browser.events if event[0] in complaints] == []


def test_the_figures_of_the_report_are_on_the_screen(browser, page, report):
    browser.open(page, 390)
    shown = browser.evaluate("document.body.innerText")
    assert f"ε = {report['epsilon']:.4g}" in shown
    for figure in ("epsilon_rdp", "epsilon_pld", "epsilon_without_amplification"):
        assert f"{report[figure]:.4g}" in shown
    assert "10⁻⁵" in shown and "60,000" in shown and "390 taken, 400 planned" in shown
    assert HOSTILE in shown
    assert all(segment["id"] in shown for segment in report["segments"])


@pytest.mark.parametrize("width", [390, 1280])
def test_the_curves_are_drawn_in_colours_of_their_own(browser, page, width):
    browser.open(page, width)
    frame = browser.evaluate("document.querySelector('svg').getBoundingClientRect().toJSON()")
    assert frame["width"] > 280 and frame["height"] > 150
    lines = browser.evaluate(CURVES)
    assert len(lines) == 2 and all(line["drawn"] and line["length"] > 200 for line in lines)
    assert len({line["stroke"] for line in lines}) == 2
