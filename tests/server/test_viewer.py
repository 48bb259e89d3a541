"""From an answer to the document, and what an answer says of itself, in a real Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import glie
from glie.encoders import Encoder
from tests.server.browser import CHROMIUM, ask, open_hit, open_page, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium was found")

SELECT = """selector => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector(selector));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  return getSelection().toString();
}"""


def test_the_file_opens_at_its_page(page: Page) -> None:
    ask(page, "turbines expenditure")
    open_hit(page)
    page.click("#next")
    expect(page.locator("#number")).to_have_text("2 / 3")
    link = page.locator("#original")
    expect(link).to_have_attribute("href", "/pages/reports%2Fa.pdf%232/original#page=2")
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener")
    sent = page.evaluate(
        "fetch(document.querySelector('#original').href).then(async (answer) => "
        "[answer.status, answer.headers.get('content-type'), (await answer.text()).slice(0, 5)])"
    )
    assert sent == [200, "application/pdf", "%PDF-"]


def test_text_is_selected_on_the_picture(page: Page) -> None:
    ask(page, "turbines expenditure")
    open_hit(page)
    page.wait_for_selector(".textlayer span", state="attached")
    copied = page.evaluate(SELECT, ".textlayer")
    assert copied.splitlines() == [
        "Capital expenditure in 2018 was 1,577 million dollars",
        "and was spent on turbines",
    ]
    # a line of text lies over the words that are marked on the picture
    page.locator("#words button").first.hover()
    mark = page.locator(".heat i").first.bounding_box()
    line = page.locator(".textlayer span").nth(1).bounding_box()
    assert mark is not None
    assert line is not None
    assert line["y"] - 5 < mark["y"] + mark["height"] / 2 < line["y"] + line["height"] + 5
    assert abs(line["x"] + line["width"] - (mark["x"] + mark["width"])) < 12  # "turbines" ends it
    page.keyboard.press("t")
    expect(page.locator(".leaftext")).to_contain_text("Capital expenditure in 2018")
    assert "spent on turbines" in page.evaluate(SELECT, ".leaftext")
    page.click("#as-text")
    expect(page.locator(".leafwrap img")).to_be_visible()


def test_zoom(page: Page) -> None:
    ask(page, "turbines expenditure")
    open_hit(page)
    wide = page.locator(".leafwrap").evaluate("node => node.clientWidth")
    page.click("#larger")
    expect(page.locator("#zoom")).to_have_text("125%")
    with page.expect_response(re.compile("size=full")):
        page.keyboard.press("+")
    assert page.locator(".leafwrap").evaluate("node => node.clientWidth") == round(1.5 * wide)
    expect(page.locator(".leafwrap img")).to_have_js_property("naturalHeight", 3200)
    page.keyboard.press("0")
    page.keyboard.press("-")
    expect(page.locator("#zoom")).to_have_text("75%")
    for _ in range(3):
        page.keyboard.press("-")
    assert page.is_disabled("#smaller")
    page.click("#zoom")
    assert page.locator(".leafwrap").evaluate("node => node.clientWidth") == wide


def test_a_page_is_read_on_a_phone(browser: Browser, address: str) -> None:
    page = open_page(browser, f"{address}/?q=turbines&page=reports%2Fa.pdf%231", size=(390, 844))
    page.wait_for_selector(".heat i")
    before = page.locator("#stage").bounding_box()
    page.click("#fold")
    after = page.locator("#stage").bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] > before["height"] + 100
    page.click("#as-text")
    size = page.locator(".leaftext").evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
    assert size >= 16
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    tools = page.locator("#tools").bounding_box()
    assert tools is not None
    assert tools["height"] < 70  # on one line
    page.context.close()


def test_the_numbers_add_up_to_the_score(page: Page) -> None:
    home = page.url.split("?")[0]
    for mode in ("hybrid", "late", "lexical"):
        page.goto(f"{home}?q=turbines+expenditure+in+2018&by={mode}")
        page.wait_for_selector("#results .card")
        score = page.locator("#results .card [title=Score]").first.inner_text()
        open_hit(page)
        numbers = page.locator("#sum dd:last-child").all_inner_texts()
        assert numbers[-1] == score
        assert sum(map(cents, numbers[:-1])) == cents(score), mode
        words = page.locator("#words small").all_inner_texts()
        assert sum(map(cents, words)) == cents(score), mode
        by = {"hybrid": "by words and meaning", "late": "by meaning", "lexical": "by words"}[mode]
        said = page.inner_text("#ranked")
        assert said.startswith("Number 1 of ")
        assert f", {by}." in said
    page.goto(f"{home}?q=turbines+expenditure+in+2018")
    page.wait_for_selector("#results .card")
    open_hit(page)
    page.locator("#words button").nth(0).hover()
    said = page.inner_text("#why-note")
    assert re.fullmatch(r"“turbines” adds \d\.\d\d by words and \d\.\d\d by meaning\.", said)
    page.check("input[value=document]")
    expect(page.locator("#ranked")).to_contain_text("With all its vectors")
    assert page.locator("#sum > *").count() == 0


def cents(number: str) -> int:
    return round(100 * float(number))


def test_answers_by_document(page: Page) -> None:
    ask(page, "capital expenditure")
    page.click("#group")
    names = page.locator("#results .group h2").all_inner_texts()
    assert len(names) == 3
    assert names[0].startswith("reports/a.pdf")
    assert names[0].endswith("3 pages")
    assert page.locator("#results .group").first.locator(".card").count() == 3
    assert "group=document" in page.url
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#words button")
    page.keyboard.press("Escape")
    page.click("#group")
    expect(page.locator("#results .group")).to_have_count(0)
    assert "group=" not in page.url


def test_many_documents_are_a_list_to_search(page: Page) -> None:
    def many(route: Route) -> None:
        answer = route.fetch().json()
        named = answer["documents"][0]
        answer["documents"] += [{**named, "name": f"more/{n}.pdf"} for n in range(300)]
        route.fulfill(body=json.dumps(answer), content_type="application/json")

    page.route("**/documents", many)
    page.reload()
    ask(page, "capital expenditure")
    page.click("#filters summary")
    listed = page.locator("#filters .choose li")
    assert listed.count() == 101
    field = page.locator("#filters input[type=search]")
    expect(field).to_be_focused()  # so that typing narrows it
    page.keyboard.press("Escape")
    expect(page.locator("#filters details")).not_to_have_attribute("open", "")
    page.click("#filters summary")
    assert listed.last.inner_text().startswith("and 203 more documents")
    page.fill("#filters input[type=search]", "B.PD")
    expect(listed).to_have_count(1)
    page.check("#filters input[value='b.pdf']")
    expect(page.locator("#results .card")).to_have_count(1)
    assert page.inner_text("#filters summary") == "1 of 303 documents"
    page.keyboard.press("Escape")
    page.click("#filters .chosen")
    expect(page.locator("#results .card")).to_have_count(5)
    page.click("#said")
    expect(page.locator("#filters details")).not_to_have_attribute("open", "")


def test_nothing_matches_well(page: Page) -> None:
    ask(page, "zzzz qqqq")
    expect(page.locator("#doubts")).to_contain_text("Nothing here matches well.")
    assert page.inner_text("#said").startswith("5 pages, the nearest first")
    assert set(page.locator("#results .level").all_inner_texts()) == {"weak"}
    ask(page, "Wie hoch waren die Investitionen im Jahr 2018?")
    expect(page.locator("#doubts")).to_contain_text("This looks like German.")
    ask(page, "capital expenditure in 2018")
    expect(page.locator("#doubts p")).to_have_count(0)
    assert page.locator("#results .level").first.inner_text() in ("good", "strong")
    assert page.inner_text("#said").startswith("5 pages, best first")


def test_a_passage_by_meaning(page: Page) -> None:
    """Where no word of the question is on a page, the server is asked for the nearest passage."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{page.url.split('?')[0]}?q=vessel+hire&by=late")
    page.wait_for_selector("#results .card")
    snippet = page.locator("[data-id='notes.md#1'] .snippet")
    expect(snippet).to_contain_text("crane barge is booked")
    page.wait_for_load_state("networkidle")
    assert len([url for url in asked if "/snippet" in url]) == 5
    asked.clear()
    ask(page, "capital expenditure turbines")
    page.wait_for_load_state("networkidle")
    assert not any("a.pdf%231/snippet" in url for url in asked)  # its words are there


def test_a_damaged_link(browser: Browser, address: str) -> None:
    page = open_page(browser, f"{address}/?page=reports%2Fa.pdf%2399")
    expect(page.locator("#viewer-title")).to_have_text("No such page")
    expect(page.locator("#stage")).to_contain_text("It asks for “reports/a.pdf#99”")
    assert page.is_hidden("#tools")
    page.click("text=Open reports/a.pdf")
    expect(page.locator("#number")).to_have_text("1 / 3")
    page.goto(f"{address}/?page=%E0%A4%A&q=turbines")
    expect(page.locator("#viewer-title")).to_have_text("No such page")
    page.click("text=Search all documents")
    expect(page.locator("#viewer")).not_to_be_visible()
    page.wait_for_selector("#shelf button")
    page.context.close()


def test_an_empty_index_takes_documents(
    browser: Browser, encoder: Encoder, made: Path, tmp_path: Path
) -> None:
    glie.Index.create(tmp_path / "empty.glie", glie.Codec(bytes_per_page=520), encoder=encoder)
    with served(tmp_path / "empty.glie", encoder=encoder) as url:
        page = open_page(browser, url)
        expect(page.locator("#start")).to_contain_text("Drop documents here")
        with page.expect_file_chooser() as chooser:
            page.click("#start")
        chooser.value.set_files(made / "docs" / "b.pdf")
        expect(page.locator("#uploaded")).to_have_text("b.pdf added, 1 page.")
        page.keyboard.press("Escape")
        page.wait_for_selector("#shelf button")
        assert page.is_hidden("#start")
        page.click("#manage")
        same = {"name": "another name.pdf", "mimeType": "application/pdf"}
        page.set_input_files("#files", {**same, "buffer": (made / "docs" / "b.pdf").read_bytes()})  # type: ignore[arg-type]
        expect(page.locator("#uploaded")).to_have_text(
            "b.pdf: already in the index, byte for byte."
        )
        page.context.close()
