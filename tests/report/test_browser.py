"""The report page in headless Chromium: visible content, mouse and keyboard.

EDGEKIT_PICTURES names a folder for screenshots to review.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgekit.host.deploy.release import Benchmark, OperatorTime
from edgekit.host.deploy.release.types import ClockReadings
from edgekit.host.report import bench_report, page
from edgekit.host.report.field import field_report
from tests.support.browser import Browser, find_browser, running_browser
from tests.support.reports import fill_fleet, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_browser() is None, reason="needs headless Chromium"),
]

HOSTILE = '<img src=x onerror="document.title=1">'
NAMES = "#operator-table tbody th button"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    """A page with two models, one of which has a hostile name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder / "home"))
        fill_store()
        others = ("c" * 16, "d" * 16)
        operators = ((HOSTILE, "add", 5),)
        store = fill_store(None, HOSTILE, ("far",), operators, releases=others)
        text = page(field_report(store, datetime(2026, 11, 22, 8, 0, tzinfo=UTC)))
    made = folder / "report.html"
    made.write_text(text)
    return made


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Browser]:
    with running_browser(folder) as found:
        yield found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_a_page_fits_and_asks_for_nothing(
    browser: Browser, file: Path, folder: Path, width: int, dark: bool
) -> None:
    browser.open(file, width=width, height=800, dark=dark)
    assert browser.value("document.documentElement.scrollWidth") == width
    assert (browser.requests, browser.complaints) == ([file.as_uri()], [])
    assert browser.texts("h1") == ["tiny"]
    background = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(16, 19, 23)") == dark
    picture = Path(os.environ.get("EDGEKIT_PICTURES", folder)) / f"{width}-{dark}.png"
    browser.picture(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_text_is_readable_on_every_color(browser: Browser, file: Path) -> None:
    """A contrast of 4.5, as WCAG AA requires, on the plain background and on the hottest
    operator."""
    contrast = """(() => {
        const rgb = (color) => {
            const context = document.createElement("canvas").getContext("2d");
            context.fillStyle = color;
            context.fillRect(0, 0, 1, 1);
            return [...context.getImageData(0, 0, 1, 1).data];
        };
        const light = (color) => rgb(color).slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const ratio = (a, b) => {
            const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
            return (high + 0.05) / (low + 0.05);
        };
        const of = (selector) => getComputedStyle(document.querySelector(selector));
        const hot = [...document.querySelectorAll(".node")]
            .find((n) => n.style.getPropertyValue("--heat") === "1.000");
        return [
            ratio(of("footer").color, of("body").backgroundColor),
            ratio(of("#status").color, of("#operators").backgroundColor),
            ratio(getComputedStyle(hot.querySelector("text")).fill,
                getComputedStyle(hot.querySelector("rect")).fill),
        ];
    })()"""
    for dark in (False, True):
        browser.open(file, dark=dark)
        assert min(browser.value(contrast)) >= 4.5


def test_a_click_opens_an_operator_and_shows_its_runner_up(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert browser.texts(NAMES) == ["firstconv2d", "lastconv2d", "sidepad"]
    browser.click(f"{NAMES}[data-operator='2']")
    shown = browser.texts("tr.detail")
    assert len(shown) == 1 and "in_place 4x8 f32, 1.25 × its cost" in shown[0]
    assert browser.value("document.querySelector('.node.chosen').dataset.operator") == "2"
    browser.click(f"{NAMES}[data-operator='2']")
    assert browser.texts("tr.detail") == []


def test_the_graph_is_walked_with_arrows_and_opened_with_enter(
    browser: Browser, file: Path
) -> None:
    browser.open(file)
    browser.value("document.querySelector('.node[tabindex=\"0\"]').focus()")
    browser.press("ArrowDown", "ArrowDown", "ArrowUp", "End", "Enter")
    focused = "document.activeElement.dataset.operator"
    assert (browser.value(focused), len(browser.texts("tr.detail"))) == ("2", 1)
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_filters_work_by_keyboard_alone_and_keep_the_focus(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.value("document.querySelector('[name=kind]').focus()")
    browser.press("p")  # type-ahead in a select box
    assert browser.texts(NAMES) == ["sidepad"]
    assert browser.value("document.activeElement.name") == "kind"
    assert browser.texts("#status")[0].startswith("1 of 3 operators, 9.1%")
    assert browser.value("document.querySelectorAll('.node.faint').length") == 2
    browser.press("Tab", "Tab")
    assert browser.value("document.activeElement.name") == "text"
    browser.press(*"first")
    assert browser.texts("#status")[0].startswith("0 of 3")


def test_a_board_and_an_older_release_are_chosen(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.click("[data-board='east']")
    assert "Inference on east" in browser.texts("#figures dt")
    assert browser.value("document.querySelector('[name=board]').value") == "east"
    browser.click("[data-release='0']")
    assert "a" * 16 in browser.texts("#subtitle")[0]
    assert browser.value("document.querySelector('[data-release=\"0\"]').ariaPressed") == "true"


def test_hostile_names_are_shown_as_they_are(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.value("document.querySelector('[name=model]').focus()")
    browser.press("ArrowDown")
    assert browser.texts("h1") == [HOSTILE]
    assert browser.texts(NAMES)[0].startswith(HOSTILE)
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.complaints == []


def test_everything_that_one_can_use_has_a_name(browser: Browser, file: Path) -> None:
    browser.open(file)
    nameless = """[...document.querySelectorAll("button, select, input, a, [role=button]")]
        .filter((e) => e.checkVisibility())
        .filter((e) => !(e.textContent || e.ariaLabel || e.labels?.length)).length"""
    assert browser.value(nameless) == 0
    assert browser.value("document.querySelectorAll('th:not([scope])').length") == 0
    assert browser.value("document.documentElement.lang") == "en"


@pytest.mark.parametrize("width", [1280, 360])
def test_the_fleet_is_first_and_links_to_its_models(
    browser: Browser, folder: Path, width: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder / f"fleet-{width}"))
        text = page(field_report(fill_fleet(20), datetime.now(UTC), ["door"]))
    file = folder / f"fleet-{width}.html"
    file.write_text(text)
    browser.open(file, width)
    (status,) = browser.texts("#overview-status")
    assert status == "20 boards, 1 group, 3 stragglers, 1 in the inventory never heard"
    assert len(browser.texts("#overview-stragglers tbody tr")) == 3
    assert browser.texts("#overview-groups small")[1] == "bbbbbbbb on 19, aaaaaaaa on 1"
    browser.click("#overview-groups button")
    assert browser.texts("#model") == ["tiny"]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert (browser.complaints, [r for r in browser.requests if not r.startswith("file:")]) == (
        [],
        [],
    )
    if place := os.environ.get("EDGEKIT_PICTURES"):
        browser.picture(Path(place) / f"fleet-{width}.png")


def test_the_page_of_a_benchmark_shows_hot_spots(browser: Browser, folder: Path) -> None:
    """As text only; a page without hot spots has no empty section."""
    operators = (OperatorTime("a", "conv2d", "k", 1.0, 1.0),)
    clock = ClockReadings(None, None, None)
    timing = Benchmark("r" * 16, "m", 1, 1.0, 1.0, 1.0, 9, operators, 64, 32, clock, clock)
    made = folder / "hotspots.html"
    now = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
    for lines in ((), (f"hotspots memory: {HOSTILE}", "try      edgekit quantize m")):
        made.write_text(page(bench_report("pi", "rpi4", [[timing]], now, hotspots=[lines])))
        browser.open(made)
        assert browser.value("document.getElementById('hotspots-account').hidden") == (not lines)
        assert browser.texts("#hotspots li") == [" ".join(line.split()) for line in lines]
    assert browser.complaints == []
