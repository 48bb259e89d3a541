"""The page, as a person uses it, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from glie.encoders import Encoder
from tests.documents.test_documents import make_pdf
from tests.server.browser import CHROMIUM, ask, open_hit, open_page, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium was found")


def test_search_and_see_what_it_cost(page: Page) -> None:
    page.wait_for_selector("#shelf button")
    assert page.inner_text("#holds").startswith("5 pages in 3 documents")
    ask(page, "capital expenditure in 2018")
    first = page.locator("#results .card").first
    assert first.locator(".name").inner_text() == "reports/a.pdf"
    assert "Page 1" in first.locator(".place").inner_text()
    assert first.locator("mark").all_inner_texts() == ["Capital", "expenditure", "2018"]
    expect(first.locator("img")).to_have_js_property("naturalHeight", 480)
    cost = page.inner_text(".cost")
    for part in ("5 pages scanned", "5 regenerated", "read", "ms"):
        assert part in cost
    assert "q=capital" in page.url
    page.reload()
    page.wait_for_selector("#results .card")
    assert page.input_value("#query") == "capital expenditure in 2018"


def test_words_and_meaning(page: Page) -> None:
    ask(page, "capital expenditure in 2018")
    meter = page.locator("#results .card").first.locator(".meter")
    told = meter.get_attribute("aria-label") or ""
    assert re.fullmatch(r"\d+% words, \d+% meaning", told)
    assert meter.locator(".words").count() == 1
    page.select_option("#by", "late")
    expect(page.locator("#results .meter .words")).to_have_count(0)
    assert "by=late" in page.url
    page.select_option("#by", "lexical")
    expect(page.locator("#results .card")).to_have_count(2)  # another page has "in"
    ask(page, '"twice a year"')
    expect(page.locator("#results .card")).to_have_count(1)
    assert page.locator("mark").all_inner_texts() == ["twice", "a", "year"]
    page.fill("#query", "nowhere")
    page.press("#query", "Enter")
    expect(page.locator("#said")).to_contain_text("No page matches.")


def test_more_like_a_page(page: Page) -> None:
    ask(page, "capital expenditure")
    open_hit(page)
    page.click("#to-like")
    expect(page.locator("#said")).to_contain_text("4 pages like reports/a.pdf#1")
    assert page.locator("[data-id='reports/a.pdf#1']").count() == 0
    ask(page, "holiday")
    assert "like=" not in page.url


def test_open_a_page_and_see_why_word_by_word(page: Page) -> None:
    ask(page, "turbines expenditure")
    open_hit(page)
    assert page.inner_text("#viewer-title") == "reports/a.pdf"
    assert page.inner_text("#number") == "1 / 3"
    words = page.locator("#words button")
    assert [text.split()[0] for text in words.all_inner_texts()] == ["turbines", "expenditure"]
    expect(page.locator(".leafwrap img")).to_have_js_property("naturalHeight", 1600)
    tops = []
    for number, found in enumerate(("turbines", "expenditure")):
        words.nth(number).hover()
        assert page.locator("#found li b").first.inner_text().split()[0] == found
        warmest = page.locator(".heat i").first.bounding_box()
        picture = page.locator(".leafwrap img").bounding_box()
        assert warmest is not None
        assert picture is not None
        assert picture["x"] < warmest["x"] < picture["x"] + picture["width"]
        tops.append(warmest["y"])
        assert words.nth(number).get_attribute("aria-pressed") == "true"
    assert tops[0] > tops[1]  # turbines stand on the second line
    page.mouse.move(5, 400)
    expect(page.locator("#found li")).to_have_count(0)
    assert len(colours(page)) == 2  # at rest, each word is marked in its own
    words.nth(0).focus()  # without a mouse
    assert len(colours(page)) == 1
    with page.expect_response(re.compile("vectors=document")):
        page.check("input[value=document]")


def colours(page: Page) -> set[str]:
    """Of the places that are warm."""
    return set(page.locator(".heat i").evaluate_all("all => all.map((i) => i.style.background)"))


def test_pages_turn_and_addresses_keep_their_place(page: Page) -> None:
    ask(page, "turbines expenditure")
    open_hit(page)
    assert page.is_disabled("#previous")
    page.click("#next")
    expect(page.locator("#number")).to_have_text("2 / 3")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#number")).to_have_text("3 / 3")
    assert page.is_disabled("#next")
    page.reload()
    expect(page.locator("#number")).to_have_text("3 / 3")
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).not_to_be_visible()
    expect(page).not_to_have_url(re.compile("page="))
    page.go_back()
    page.wait_for_selector("#viewer[open]")


def test_a_question_that_comes_before_the_page_knows_its_index(page: Page) -> None:
    held: list[Route] = []
    page.route("**/info", lambda route: held.append(route))
    page.reload(wait_until="domcontentloaded")
    page.fill("#query", "capital expenditure")
    page.keyboard.press("Enter")
    page.wait_for_function("location.search.includes('capital')")
    held.pop().continue_()
    expect(page.locator("#results .card")).to_have_count(5)


def test_filters_by_document(page: Page) -> None:
    ask(page, "capital expenditure")
    page.check("#filters input[value='b.pdf']", force=True)
    expect(page.locator("#results .card")).to_have_count(1)
    assert page.inner_text("#results .name") == "b.pdf"
    page.uncheck("#filters input[value='b.pdf']", force=True)
    expect(page.locator("#results .card")).to_have_count(5)


def test_by_keyboard_alone(page: Page) -> None:
    page.wait_for_selector("#shelf button")
    page.locator("body").press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type("rotor blades")
    page.keyboard.press("Enter")
    page.wait_for_selector("#results .card")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#results .card").nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector("#words button")
    page.keyboard.press("2")
    expect(page.locator("#words button").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#results .card").first).to_be_focused()


def test_a_text_with_its_words_marked(page: Page) -> None:
    ask(page, "crane barge")
    open_hit(page)
    page.locator("#words button").first.hover()
    warm = page.locator(".leaftext span[style*=background]")
    assert warm.first.inner_text() == "crane"  # though a fish stands before it, of two halves


def test_upload_a_pdf_find_it_and_delete_it(page: Page, tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "otters.pdf", ["Otters hold hands", "when they sleep"])
    page.click("#manage")
    page.set_input_files("#files", path)
    expect(page.locator("#uploaded")).to_contain_text("added")
    assert page.inner_text("#uploaded") == "otters.pdf added, 2 pages."
    page.keyboard.press("Escape")
    ask(page, "otters holding hands")
    assert page.locator("#results .name").first.inner_text() == "otters.pdf"
    # or the browser asks for a picture of what is deleted next
    expect(page.locator("#results .thumb.loading")).to_have_count(0)
    page.click("#manage")
    page.click("text=Delete >> nth=-1")
    page.click("text=Really?")
    expect(page.locator("#uploaded")).to_contain_text("deleted")
    page.keyboard.press("Escape")
    expect(page.locator(".name", has_text="otters.pdf")).to_have_count(0)


def test_a_broken_pdf_is_told(page: Page, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    page.click("#manage")
    page.set_input_files("#files", tmp_path / "broken.pdf")
    wrong = page.wait_for_selector("#uploaded .wrong")
    assert wrong is not None
    assert wrong.inner_text().startswith("broken.pdf: damaged")
    assert page.is_hidden("#progress")


def test_a_phone(browser: Browser, address: str) -> None:
    page = open_page(browser, address, size=(390, 844), touch=True)
    ask(page, "capital expenditure")
    for path in ("", "?view=budget", "?view=geometry"):
        if path:
            page.goto(f"{address}/{path}")
            page.wait_for_selector("#budget button, #budget svg, #map svg")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide == 390, path  # nothing to be moved sideways
    page.goto(f"{address}/?q=capital+expenditure")
    page.tap("#results .card >> nth=0")
    page.wait_for_selector("#words button")
    stage, why = (page.locator(name).bounding_box() for name in ("#stage", ".why"))
    assert stage is not None
    assert why is not None
    assert why["y"] >= stage["y"] + stage["height"] - 1  # below the page, not beside it
    page.tap("#words button >> nth=1")
    assert page.locator("#found li b").first.inner_text() == "expenditure"
    close = page.locator("#close").bounding_box()
    assert close is not None
    assert min(close["width"], close["height"]) >= 40  # wide enough for a thumb
    page.context.close()


def test_light_and_dark(browser: Browser, address: str) -> None:
    """Each has its colours, and text stands out from what is behind it."""
    shown = {}
    for scheme in ("light", "dark"):
        page = open_page(browser, f"{address}/?q=capital", scheme=scheme)
        page.wait_for_selector("#results .card")
        for selector in (".name", ".snippet", ".place", ".cost", "nav a", "#form button", "mark"):
            ratio = page.evaluate(CONTRAST, selector)
            assert ratio >= 4.5, (scheme, selector, ratio)
        shown[scheme] = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.context.close()
    assert shown["light"] != shown["dark"]


# how far the colour of a text is from that of the nearest thing behind it, as WCAG measures it
CONTRAST = """selector => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  let node = document.querySelector(selector);
  const text = light(numbers(getComputedStyle(node).color));
  while (node && (numbers(getComputedStyle(node).backgroundColor)[3] ?? 1) === 0) node = node.parentElement;
  const behind = light(numbers(getComputedStyle(node ?? document.documentElement).backgroundColor));
  return (Math.max(text, behind) + .05) / (Math.min(text, behind) + .05);
}"""


def test_insights(page: Page, address: str) -> None:
    page.click("nav a[data-view=insights]")
    assert "glie shrink" in page.inner_text("#budget .use")
    expect(page.locator("#budget")).to_contain_text(re.compile("This takes (about|a few)"))
    page.click("text=Measure this corpus")
    page.wait_for_selector("#budget .spot", timeout=120_000)
    assert page.locator("#budget .here").text_content() == "this index"
    assert page.locator("#budget .spot").count() == 6  # short pages take less than some budgets
    page.locator("#budget .spot").last.focus()
    assert page.locator("#budget .tile b").first.inner_text() == "all vectors"
    assert page.locator("#budget tr.now td").first.inner_text() == "this index"
    page.fill("#budget input[type=range]", "6")
    assert page.inner_text("#budget output") == "1,000,000 pages"
    page.click("#insights a[data-view=geometry]")
    page.wait_for_selector("#map svg")
    page.wait_for_selector("#shape svg")
    page.select_option("#pick-document", "reports/a.pdf")
    page.wait_for_selector("#pick-page option:nth-child(3)", state="attached")
    page.select_option("#pick-page", "reports/a.pdf#2")
    page.wait_for_selector("#map .plot[aria-label$='reports/a.pdf#2'] svg")
    dots = page.locator("#map [data-layer=vectors] circle").count()
    tiles = page.locator("#map .tile b").all_inner_texts()
    assert tiles[0] == str(dots)
    page.uncheck("#map .switches input >> nth=0")
    assert page.locator("#map [data-layer=vectors]").get_attribute("visibility") == "hidden"


def test_a_token_is_asked_for(browser: Browser, made: Path, encoder: Encoder) -> None:
    with served(made / "my.glie", encoder=encoder, token="correct-horse", read_only=True) as url:
        page = open_page(browser, url)
        page.wait_for_selector("#login[open]")
        page.fill("#token", "wrong-horse")
        page.press("#token", "Enter")
        expect(page.locator("#login-note")).to_have_text("the token is wrong")
        page.fill("#token", "correct-horse")
        page.press("#token", "Enter")
        page.wait_for_selector("#shelf img")
        assert page.locator("#login[open]").count() == 0
        page.click("#manage")
        assert page.is_hidden("#upload")
        page.context.close()
