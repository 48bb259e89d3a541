// One page, large: its picture with a layer of text to select, or its text; zoom, pages, the file.

import { $, characters, h, wait } from "./elements.js";
import { api, pagePath } from "./server.js";
import { address, go, state } from "./state.js";
import { explain, forget, light } from "./why.js";

const ZOOMS = [.5, .75, 1, 1.25, 1.5, 2, 2.5, 3, 4];
const SHARPER = 1.5;  // from this zoom on, a larger picture is asked for

// what is shown; turn counts the views, so that answers to an earlier one are dropped
export const shown = { id: null, query: null, page: null, heat: null, ranked: null, pinned: null, turn: 0, zoom: 1, asText: false };

export async function showPage(id, query) {
  const viewer = $("viewer");
  if (!viewer.open) viewer.showModal();
  if (shown.id === id && shown.query === query) return;
  Object.assign(shown, { id, query, page: null, heat: null, ranked: null, pinned: null, turn: shown.turn + 1 });
  const { turn } = shown;
  forget(query);
  $("to-like").href = `/?${new URLSearchParams({ like: id })}`;
  $("to-map").href = `/?${new URLSearchParams({ view: "geometry", page: id })}`;
  $("previous").disabled = $("next").disabled = true;
  $("viewer-title").textContent = id;
  $("number").textContent = "";
  $("tools").hidden = true;
  $("links").hidden = false;
  $("stage").replaceChildren(h("p", { class: "none" }, wait("Opening the page…")));
  try {
    const page = await api(pagePath(id));
    if (shown.turn !== turn) return;
    shown.page = page;
  } catch (error) {
    if (shown.turn === turn) showMissing(id, error);
    return;
  }
  const { page } = shown;
  $("viewer-title").textContent = page.document ?? page.id;
  $("number").textContent = page.page === null ? "" : `${page.page}${page.pages > 1 ? ` / ${page.pages}` : ""}`;
  $("previous").disabled = !page.previous;
  $("next").disabled = !page.next;
  $("tools").hidden = false;
  $("original").hidden = !page.original;
  $("original").href = `${pagePath(id, "/original")}${/\.pdf$/i.test(page.document ?? "") && page.page ? `#page=${page.page}` : ""}`;
  $("as-text").hidden = !(page.picture && page.text);
  drawPage();
  await explain();
}

// A link to a page that is not in the index: damaged, or of a document that has gone.
function showMissing(id, error) {
  const name = id.includes("#") ? id.slice(0, id.lastIndexOf("#")) : id;
  const document = state.documents.find((one) => one.name === name);
  $("why-note").textContent = "";
  $("seen-by").hidden = $("links").hidden = true;
  $("viewer-title").textContent = "No such page";
  $("stage").replaceChildren(h("div", { class: "none" },
    h("p", {}, h("b", {}, "This link leads to no page of this index.")),
    h("p", {}, `It asks for “${id.slice(0, 200)}”. The link may be damaged, or the document was deleted or renamed.`),
    h("p", { class: "muted" }, error.message),
    h("p", { class: "more" },
      document ? h("a", { href: `/?${new URLSearchParams({ page: document.first })}`, "data-link": true }, `Open ${document.name}`) : null,
      h("a", { href: "/", "data-link": true }, "Search all documents"))));
}

export function drawPage() {
  const { page, turn } = shown;
  const stage = $("stage");
  stage.scrollTo(0, 0);
  const picture = page.picture && !shown.asText;
  stage.classList.toggle("unread", picture);
  $("as-text").setAttribute("aria-pressed", String(shown.asText && page.picture));
  if (picture) {
    const image = h("img", { alt: `${page.document}, page ${page.page}`, src: pagePath(page.id, "/image"), draggable: "false" });
    const layer = h("div", { class: "textlayer" });
    image.addEventListener("load", () => { stage.classList.remove("unread"); if (shown.turn === turn && !layer.childNodes.length) layText(layer, image, turn); });
    image.addEventListener("error", () => { stage.classList.remove("unread"); stage.replaceChildren(h("p", { class: "none" }, page.note ?? "The page cannot be drawn.")); });
    stage.replaceChildren(h("div", { class: "leafwrap" }, image, h("div", { class: "heat", "aria-hidden": "true" }), layer));
  } else if (page.text) {
    stage.replaceChildren(h("div", { class: "leaftext" }, page.text));
  } else {
    stage.replaceChildren(h("p", { class: "none" }, page.note ?? "There is nothing to show of this page."));
  }
  zoom(shown.zoom);
}

// ---- a layer of text over the picture: lines that can be selected and copied

async function layText(layer, image, turn) {
  let words;
  try {
    ({ words } = await api(pagePath(shown.id, "/words")));
  } catch { return; }
  if (shown.turn !== turn || layer.childNodes.length) return;
  const shape = image.naturalWidth / image.naturalHeight;
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `100px ${getComputedStyle(layer).fontFamily}`;
  layer.append(...linesOf(words).flatMap(({ text, box: [left, top, right, bottom] }) => {
    const wide = pen.measureText(text).width / 100 * (bottom - top);  // as a share of the height
    const stretch = wide ? (right - left) * shape / wide : 1;
    return [h("span", { style: { left: `${100 * left}%`, top: `${100 * top}%`, "--tall": String(bottom - top), transform: `scaleX(${stretch.toFixed(4)})` } }, text), h("br", {})];
  }));
}

// Words that follow each other on a line, as one text.
function linesOf(words) {
  const lines = [];
  for (const { text, box: [left, top, right, bottom] } of words) {
    const line = lines.at(-1);
    const tall = bottom - top;
    const same = line && left >= line.box[2] - .01 && left - line.box[2] < 3 * tall && Math.min(bottom, line.box[3]) - Math.max(top, line.box[1]) > .5 * Math.min(tall, line.box[3] - line.box[1]);
    if (same) {
      line.text += ` ${text}`;
      line.box = [line.box[0], Math.min(line.box[1], top), Math.max(line.box[2], right), Math.max(line.box[3], bottom)];
    } else lines.push({ text, box: [left, top, right, bottom] });
  }
  return lines;
}

// A text as words, each an element that can be warm.
export function layOut(heat) {
  const letters = characters(shown.page.text);
  const parts = [];
  let at = 0;
  heat.places.forEach(([start, end], place) => {
    parts.push(letters.slice(at, start).join(""), h("span", { "data-place": place }, letters.slice(start, end).join("")));
    at = end;
  });
  $("stage").querySelector(".leaftext")?.replaceChildren(...parts, letters.slice(at).join(""));
}

// ---- zoom

function zoom(factor) {
  const stage = $("stage");
  const [x, y] = [(stage.scrollLeft + stage.clientWidth / 2) / stage.scrollWidth, (stage.scrollTop + stage.clientHeight / 2) / stage.scrollHeight];
  const before = shown.zoom;
  shown.zoom = factor;
  stage.style.setProperty("--zoom", String(factor));
  $("zoom").textContent = `${Math.round(100 * factor)}%`;
  $("smaller").disabled = factor <= ZOOMS[0];
  $("larger").disabled = factor >= ZOOMS.at(-1);
  if (factor !== before) stage.scrollTo(x * stage.scrollWidth - stage.clientWidth / 2, y * stage.scrollHeight - stage.clientHeight / 2);
  const image = stage.querySelector(".leafwrap img");
  if (image && factor >= SHARPER && !image.dataset.full) {
    image.dataset.full = "yes";
    const larger = new Image();
    larger.onload = () => { image.src = larger.src; };
    larger.src = pagePath(shown.id, "/image?size=full");
  }
}
const step = (way) => zoom(ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.findIndex((one) => one >= shown.zoom) + way))]);
$("larger").addEventListener("click", () => step(1));
$("smaller").addEventListener("click", () => step(-1));
$("zoom").addEventListener("click", () => zoom(1));

function switchText() {
  if ($("as-text").hidden || $("tools").hidden) return;
  shown.asText = !shown.asText;
  drawPage();
  light(shown.pinned);
}
$("as-text").addEventListener("click", switchText);

$("fold").addEventListener("click", () => {
  const folded = $("fold").parentElement.classList.toggle("folded");
  $("fold").setAttribute("aria-expanded", String(!folded));
  $("fold").textContent = folded ? "▴" : "▾";
});

// ---- pages

const turn = (way) => shown.page?.[way] && go({ page: shown.page[way] }, { replace: true });
$("previous").addEventListener("click", () => turn("previous"));
$("next").addEventListener("click", () => turn("next"));
$("close").addEventListener("click", () => $("viewer").close());
$("viewer").addEventListener("close", () => {
  const id = shown.id;
  Object.assign(shown, { id: null, query: null, page: null, heat: null, ranked: null, turn: shown.turn + 1 });
  $("stage").replaceChildren();
  if (address().get("page") && !address().get("view")) go({ page: null });
  $("results").querySelector(`[data-id="${CSS.escape(id ?? "")}"]`)?.focus();
});

// The keys of the viewer; false if it is none of them.
export function viewerKey(key) {
  if (key === "ArrowLeft") turn("previous");
  else if (key === "ArrowRight") turn("next");
  else if (key === "+" || key === "=") step(1);
  else if (key === "-") step(-1);
  else if (key === "0") zoom(1);
  else if (key === "t") switchText();
  else if (key === "o" && !$("original").hidden && !$("tools").hidden) $("original").click();
  else if (/^[1-9]$/.test(key)) $("words").children[key - 1]?.focus();
  else return false;
  return true;
}
