"""The report as a page: whole, self-contained, escaped, and true to its figures.

How it looks on a phone and on a desk is judged in test_html_in_browser.
"""

import html.parser
import math
import re

import pytest

from tfdp.privacy import Ledger, PrivacyPlan, PrivacyReport
from tfdp.privacy.report import build_report
from tfdp.privacy.report_html import figure, percent, ticks

VOID = {"meta", "br", "circle", "path", "polyline"}


class Page(html.parser.HTMLParser):
    """Elements, attributes and text; fails on elements that are not closed in order."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def values(self, tag, name):
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def plan(**changes):
    values = {
        "num_examples": 60_000,
        "batch_size": 256,
        "steps": 400,
        "clip_norm": 0.5,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
    }
    return PrivacyPlan(**{**values, **changes})


def made(*plans_and_updates):
    ledger = Ledger()
    for p, steps in plans_and_updates:
        for _ in range(steps):
            ledger.record(p.settings)
    return ledger


def written(report, folder):
    path = folder / "new" / "privacy_report.html"
    report.write_html(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return path.read_text(encoding="utf-8")


HOSTILE = """</ul></div><script>alert(1)</script><img src=x onerror="a()"> $style & 'quotes'"""


@pytest.fixture(scope="module")
def report():
    return build_report(
        plan(),
        made((plan(), 390)),
        unit="one picture with its caption",
        counts={"bad_records": {"truncated": 3}},
        notes=[HOSTILE],
    )


@pytest.fixture(scope="module")
def source(report, tmp_path_factory):
    return written(report, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


def test_the_page_fits_a_phone_and_needs_nothing_from_outside(source, page):
    assert source.startswith("<!DOCTYPE html>")
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "href", "srcset", "action", "xlink:href", "data", "background"}
    assert not {name for name in names if name.startswith("on")}
    assert not {"script", "link", "iframe", "img", "object", "base"} & set(page.tags)
    [style] = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert "http" not in source
    assert len(source) < 60_000


def test_every_section_is_there(page):
    for title in (
        "What is protected, and against whom",
        "The best an attacker can do",
        "Epsilon by accountant",
        "Epsilon against steps",
        "Noise and sampling",
        "What is not covered",
        "What the guarantee assumes",
        "Counts",
        "Ledger",
        "Versions",
    ):
        assert title in page.texts


def test_the_figures_are_the_reports(report, page):
    attack = report["attacker_true_positive_rate"]
    for part in (
        f"ε = {report['epsilon']:.4g}",
        "at δ = 10⁻⁵",
        f"at most {attack['0.01']:.2%} of those who were",
        f"{attack['0.001']:.2%}",
        f"PLD (dp-accounting) {report['epsilon_pld']:.4g}",
        f"RDP (tensorflow-privacy) {report['epsilon_rdp']:.4g}",
        "exact Gaussian no answer",
        f"without amplification by sampling {report['epsilon_without_amplification']:.4g}",
        "one picture with its caption",
        "differ by the presence of one example (add_or_remove_one)",
        "standard deviation 0.5 on the sum",
        report["noise_convention"],
        "each example included independently with probability q (poisson)",
        "q = 256 / 60,000 = 0.004267",
        "390 taken, 400 planned",
        f"{report['expected_coverage']:.2%} of the examples",
        "truncated: 3",
        report["segments"][0]["id"],
        report["versions"]["dp-accounting"],
        "DP-SGD performed over 60000 examples",
        *report["covered"],
        *report["not_covered"],
    ):
        assert " ".join(part.split()) in page.text, part


def test_hostile_notes_stay_text(source, page):
    assert HOSTILE in page.texts
    assert "<script" not in source and "<img" not in source


def test_hostile_units_counts_and_versions_stay_text(report, tmp_path):
    values = {**report.values, "unit": HOSTILE, "counts": {HOSTILE: {HOSTILE: 1}}}
    values["versions"] = {HOSTILE: HOSTILE}
    values["segments"] = [{**report["segments"][0], "id": HOSTILE}]
    values["tensorflow_privacy_statement"] = HOSTILE
    source = written(PrivacyReport(values), tmp_path)
    assert "script" not in Page(source).tags and "img" not in Page(source).tags


def test_the_curve_ends_at_the_reports_epsilon(report, page):
    other, own = page.values("polyline", "points")
    points = [tuple(map(float, pair.split(","))) for pair in own.split()]
    assert len(points) == 22  # zero, the first step, and twentieths
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    label = f"{report['epsilon']:.4g} after 390 by PLD (dp-accounting)"
    assert page.values("svg", "aria-label") == [f"Epsilon against steps: {label}"]
    assert f"390 steps {report['epsilon']:.4g}" in page.text
    assert f"195 steps {plan().epsilon_after(195):.4g}" in page.text
    heights = [float(pair.split(",")[1]) for pair in other.split()]
    assert all(rdp <= pld[1] for rdp, pld in zip(heights, points, strict=True))  # y goes down


def test_a_change_of_settings_bends_the_curve(tmp_path):
    ledger = made((plan(), 100), (plan(batch_size=1024), 100))
    page = Page(written(build_report(plan(), ledger), tmp_path))
    assert f"100 steps {plan().epsilon_after(100):.4g}" in page.text
    assert f"200 steps {ledger.epsilon(1e-5).epsilon:.4g}" in page.text
    assert "256 of 60,000, poisson" in page.text and "1,024 of 60,000, poisson" in page.text
    assert "some steps ran under other settings" in page.text


def test_the_target_is_drawn(tmp_path):
    p = plan(noise_multiplier=None, epsilon=1.0)
    page = Page(written(build_report(p, made((p, 400))), tmp_path))
    assert "target 1" in page.texts


def test_a_run_by_rdp_has_one_curve(tmp_path):
    p = plan(accountant="rdp")
    page = Page(written(build_report(p, made((p, 10))), tmp_path))
    assert len(page.values("polyline", "points")) == 1


def test_no_noise_is_called_no_guarantee(tmp_path):
    p = plan(noise_multiplier=0)
    page = Page(written(build_report(p, made((p, 2))), tmp_path))
    assert "No guarantee" in page.texts
    assert "svg" not in page.tags
    assert "The guarantee proves" not in page.text


def test_nothing_done_is_said(tmp_path):
    page = Page(written(build_report(plan(), Ledger()), tmp_path))
    assert "no step has been made" in page.text
    assert "svg" not in page.tags and "Counts" not in page.texts


def test_a_report_without_its_counts_has_a_page(tmp_path):
    values = build_report(plan(), Ledger()).values
    report = PrivacyReport({key: values[key] for key in values if key != "counts"})
    assert "Counts" not in Page(written(report, tmp_path)).texts


def test_every_sampling_has_its_words(tmp_path):
    for sampling in ("fixed_size", "none", "arbitrary"):
        p = plan(sampling=sampling)
        text = Page(written(build_report(p, made((p, 3))), tmp_path)).text
        assert f"({sampling})" in text
    assert "unknown of the examples" not in text  # coverage of an unknown order


def test_a_fixed_seed_stands_above_everything(tmp_path):
    text = Page(written(build_report(plan(), made((plan(), 1)), fixed_seed=True), tmp_path)).text
    assert text.index("a fixed seed was used") < text.index("What is protected")


def test_many_segments_are_folded(tmp_path):
    ledger = Ledger()
    for _ in range(300):
        ledger.record(plan(accountant="rdp").settings)
        ledger.begin_segment()
    page = Page(written(build_report(plan(accountant="rdp"), ledger), tmp_path))
    assert "300 segments" in page.texts


@pytest.mark.parametrize(
    "value, text",
    [(7.9993, "7.999"), (1e-5, "10⁻⁵"), (4.277e-9, "4.277 × 10⁻⁹"), (0, "0"), (math.inf, "∞")],
)
def test_numbers_read_as_people_write_them(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(
    "share, text",
    [(0.5, "50.00%"), (1.0, "100.00%"), (0.999999, "more than 99.99%"), (0, "0.00%"),
     (1.2e-6, "0.0001%")],
)  # fmt: skip
def test_shares_are_not_rounded_to_certainty(share, text):
    assert percent(share) == text


@pytest.mark.parametrize("top", [1e-6, 0.37, 1, 8.6, 40, 5708, 2e7])
def test_ticks_are_few_and_round(top):
    marks = ticks(top)
    assert marks[0] == 0 and 3 <= len(marks) <= 7 and marks[-1] <= top * 1.001


def test_the_page_bears_its_day_and_names_a_bounded_attacker(report, page):
    assert re.search(r"Privacy report, made on \d{4}-\d\d-\d\d ", page.text)
    assert "but not the key (computationally bounded" in page.text
    assert "unlimited" not in page.text and "usual attacks identify far fewer" in page.text
    assert f"a factor of e^epsilon = {math.exp(report.epsilon):.4g}" in page.text
    assert all(line in page.text for line in report["assumptions"])


def test_without_a_guarantee_the_page_promises_nothing(tmp_path):
    p = plan(noise_multiplier=0)
    text = Page(written(build_report(p, made((p, 2))), tmp_path)).text
    assert "Against nobody" in text and "Covered nothing" in text
    for promise in ("every weight", "128-bit", "What the guarantee assumes"):
        assert promise not in text


def test_the_page_of_users_speaks_of_users(tmp_path):
    p = plan(examples_per_user=2)
    text = Page(written(build_report(p, made((p, 3))), tmp_path)).text
    for wrong in ("one example", "each example", "no example", "256 examples", "user-level"):
        assert wrong not in text
    assert "Several users who belong together 2: ε ≤" in text
    assert "presence of one user" in text and "256 users" in text
