// Asking a question, its answers, and the documents to choose from.

import { $, count, h, marked, size, wait, wrong } from "./elements.js";
import { api, pagePath, post } from "./server.js";
import { address, go, state } from "./state.js";

const MOST_CHIPS = 12;  // documents; more are a list to search
const MOST_LISTED = 100;  // of that list, until something is typed
const TOP = 24;

export const latest = { key: null, answer: null };  // the last search, and what it was for

export function showSearch(at) {
  const { info } = state;
  const query = at.get("q") ?? "";
  const like = query ? null : at.get("like");
  const mode = info.encoder_state === "none" ? "lexical" : at.get("by");
  const chosen = at.getAll("doc");
  if (document.activeElement !== $("query")) $("query").value = query;
  $("by").value = at.get("by") ?? "";
  $("search").classList.toggle("asked", Boolean(query || like));
  showFilters(chosen);
  $("shelf").hidden = $("start").hidden = Boolean(query || like);
  if (!query && !like) {
    Object.assign(latest, { key: null, answer: null });
    $("results").replaceChildren();
    $("said").replaceChildren();
    $("doubts").replaceChildren();
    showShelf();
    return;
  }
  const asked = { ...(like ? { like } : { query, mode }), top: TOP, documents: chosen.length ? chosen : null };
  const key = JSON.stringify([asked, info.generation]);
  if (key !== latest.key) search(key, asked);
  else if (latest.answer) showAnswer(latest.answer);
}

async function search(key, asked) {
  Object.assign(latest, { key, answer: null });
  $("results").setAttribute("aria-busy", "true");
  const slow = setTimeout(() => {
    if (latest.key === key) $("said").replaceChildren(wait(state.info.encoder_state === "loading" ? "Loading the encoder…" : "Searching…"));
  }, 150);
  try {
    const answer = await post("/search", asked);
    if (latest.key !== key) return;
    latest.answer = { ...answer, like: asked.like };
    showAnswer(latest.answer);
    dispatchEvent(new Event("answered"));
    fetchSnippets(key, answer);
  } catch (error) {
    if (latest.key !== key) return;
    latest.key = null;
    $("results").replaceChildren();
    $("doubts").replaceChildren();
    $("said").replaceChildren(wrong(error));
  } finally {
    clearTimeout(slow);
    if (latest.key === key || latest.key === null) $("results").removeAttribute("aria-busy");
  }
}

function showAnswer(answer) {
  const { hits } = answer;
  const grouped = address().get("group") === "document";
  if (drawn.answer !== answer || drawn.grouped !== grouped) {
    Object.assign(drawn, { answer, grouped });
    $("results").replaceChildren(...(grouped ? byDocument(hits) : hits.map((hit) => card(hit, hits))));
  }
  $("results").classList.toggle("grouped", grouped);
  const some = new Set(hits.map((hit) => hit.document)).size > 1;
  const order = answer.weak ? "the nearest first" : "best first";
  const like = answer.like ? ` like ${answer.like}` : "";
  const said = hits.length ? `${count(hits.length, "page")}${like}, ${order}` : state.info.pages ? "No page matches." : "No pages: the index is empty.";
  $("said").replaceChildren(h("span", {}, said),
    some ? h("button", { type: "button", id: "group", class: "quiet", "aria-pressed": String(grouped), onclick: () => go({ group: grouped ? null : "document" }, { replace: true }) }, "Group by document") : "",
    badge(answer.cost));
  $("doubts").replaceChildren(...doubts(answer));
}
const drawn = { answer: null, grouped: false };

function doubts(answer) {
  const said = [];
  if (answer.language) said.push(h("p", {}, h("b", {}, `This looks like ${answer.language}.`), " The encoder of this index reads English: ask in English."));
  if (answer.weak && answer.hits.length) said.push(h("p", {}, h("b", {}, "Nothing here matches well."), " Questions about other things reach as much in this index. These are only the nearest pages."));
  return said;
}

function badge(cost) {
  const scanned = cost.pages_estimated
    ? `${cost.pages_scanned.toLocaleString("en")} of ${count(cost.pages_estimated, "page")} scanned`
    : `${count(cost.pages_scanned, "page")} scanned`;
  return h("span", { class: "cost", title: "What this search cost" },
    h("span", {}, scanned), h("span", {}, `${cost.pages_regenerated.toLocaleString("en")} regenerated`),
    h("span", {}, `${size(cost.bytes_read)} read`),
    h("span", { title: `and ${cost.encode_milliseconds.toFixed(0)} ms to encode the question` }, `${cost.milliseconds.toFixed(1)} ms`));
}

// The documents in the order of their best page, each with its pages.
function byDocument(hits) {
  const groups = new Map();
  for (const hit of hits) groups.set(hit.document ?? hit.id, [...(groups.get(hit.document ?? hit.id) ?? []), hit]);
  return [...groups].map(([name, mine]) => h("li", { class: "group" },
    h("h2", {}, name, h("small", { class: "muted" }, count(mine.length, "page"))),
    h("ol", { class: "results" }, ...mine.map((hit) => card(hit, hits)))));
}

function card(hit, hits) {
  const said = level(hit.strength);
  return h("li", {},
    h("button", { type: "button", class: said === "weak" ? "card weak" : "card", onclick: () => go({ page: hit.id }), "data-id": hit.id },
      thumbnail(hit.id, hit.picture, hit.snippet),
      h("span", { class: "name" }, hit.document ?? hit.id),
      h("span", { class: "place" }, hit.page === null ? null : h("span", {}, `Page ${hit.page}`),
        meter(hit, hits), said ? h("span", { class: "level", title: `${hit.strength.toFixed(1)} times what unrelated questions reach` }, said) : null,
        h("span", { title: "Score" }, hit.score.toFixed(2))),
      h("span", { class: "snippet" }, ...(hit.snippet ? marked(hit.snippet, hit.marks) : [h("span", { class: "muted" }, hit.note ?? "")]))));
}

const level = (strength) => strength === null ? null : strength < 1 ? "weak" : strength < 1.5 ? "fair" : strength < 2.5 ? "good" : "strong";

// How well a page matches, and how much of its score the words are, if they were searched too.
function meter(hit, hits) {
  const best = Math.max(...hits.map((one) => one.score), 1e-9);
  const share = hit.strength === null ? hit.score / best : hit.strength / 4;
  const width = Math.min(100, Math.max(4, 100 * share));
  if (hit.words === null) return h("span", { class: "meter" }, h("i", { style: { width: `${width}%` } }));
  const words = hit.score > 0 ? Math.min(1, Math.max(0, hit.words / hit.score)) : 0;
  const told = `${Math.round(100 * words)}% words, ${Math.round(100 - 100 * words)}% meaning`;
  return h("span", { class: "meter", role: "img", "aria-label": told, title: told },
    h("i", { class: "words", style: { width: `${width * words}%` } }), h("i", { style: { width: `${width * (1 - words)}%` } }));
}

// Of pages without a word of the question, the passage that is nearest by meaning; of scans, what
// OCR reads. Both take the server a while, so they come one after another, behind the answer.
async function fetchSnippets(key, answer) {
  if (!answer.query) return;
  for (const hit of answer.hits.filter((one) => !one.marks.length)) {
    if (latest.key !== key) return;
    const place = () => $("results").querySelector(`[data-id="${CSS.escape(hit.id)}"] .snippet`);
    if (!hit.snippet && /scan/.test(hit.note ?? "")) place()?.replaceChildren(wait("Reading the scan…"));
    try {
      const found = await api(pagePath(hit.id, `/snippet?${new URLSearchParams({ query: answer.query })}`));
      Object.assign(hit, { snippet: found.snippet, marks: found.marks, note: found.note ?? hit.note });
    } catch { /* what is shown stays */ }
    if (latest.key === key) place()?.replaceChildren(...(hit.snippet ? marked(hit.snippet, hit.marks) : [h("span", { class: "muted" }, hit.note ?? "")]));
  }
}

export function thumbnail(id, picture, text = "") {
  if (!picture) {
    const leaf = h("span", { class: "thumb leaf", "aria-hidden": "true" }, text);
    api(pagePath(id)).then((page) => { leaf.textContent = page.text.slice(0, 1500); }).catch(() => {});
    return leaf;
  }
  const frame = h("span", { class: "thumb loading" });
  const image = h("img", { src: pagePath(id, "/image?size=thumbnail"), alt: "", loading: "lazy", decoding: "async" });
  image.addEventListener("load", () => { frame.classList.remove("loading"); frame.classList.toggle("wide", image.naturalWidth > image.naturalHeight); });
  image.addEventListener("error", () => { image.remove(); frame.classList.replace("loading", "leaf"); frame.append(text); });
  frame.append(image);
  return frame;
}

// ---- documents to choose from

const short = (name) => name.split("/").at(-1);

function showFilters(chosen) {
  const { documents } = state;
  if (documents.length < 2) return $("filters").replaceChildren();
  const held = document.activeElement?.closest?.("#filters") ? document.activeElement.value : null;
  if (documents.length <= MOST_CHIPS) $("filters").replaceChildren(...documents.map((one) => chip(one, chosen)));
  else showList(chosen);
  if (held) $("filters").querySelector(`input[value="${CSS.escape(held)}"]`)?.focus();
}

function chip(one, chosen) {
  return h("label", { class: "chip", title: `${one.name}, ${count(one.pages, "page")}` },
    h("input", { type: "checkbox", value: one.name, checked: chosen.includes(one.name), onchange: (event) => choose(one.name, event.target.checked) }), short(one.name));
}

function choose(name, wanted) {
  const others = address().getAll("doc").filter((one) => one !== name);
  go({ doc: wanted ? [...others, name] : others });
}

// Many documents: a list that opens, with a field that narrows it, and chips of those that were chosen.
function showList(chosen) {
  const known = $("filters").querySelector("details");
  const open = known?.open ?? false;
  const typed = known?.querySelector("[type=search]").value ?? "";
  const list = h("ul", {});
  const field = h("input", { type: "search", placeholder: "Find a document", "aria-label": "Find a document", autocomplete: "off", oninput: () => narrow() });
  field.value = typed;
  const narrow = () => {
    const wanted = field.value.trim().toLowerCase().split(/\s+/);
    const found = state.documents.filter((one) => wanted.every((part) => one.name.toLowerCase().includes(part)));
    list.replaceChildren(...found.slice(0, MOST_LISTED).map((one) => h("li", {}, h("label", {},
      h("input", { type: "checkbox", value: one.name, checked: address().getAll("doc").includes(one.name), onchange: (event) => choose(one.name, event.target.checked) }),
      h("span", {}, one.name), h("small", { class: "muted" }, String(one.pages))))),
    found.length > MOST_LISTED ? h("li", { class: "muted" }, `and ${count(found.length - MOST_LISTED, "more document")}: type to narrow the list`) : found.length ? "" : h("li", { class: "muted" }, "No document has that in its name."));
  };
  const said = chosen.length ? `${chosen.length} of ${count(state.documents.length, "document")}` : `All ${count(state.documents.length, "document")}`;
  const wasTyping = known?.contains(document.activeElement) && document.activeElement.type === "search";
  $("filters").replaceChildren(
    h("details", { class: "choose", open }, h("summary", {}, said), h("div", {}, field, list)),
    ...chosen.map((name) => h("button", { type: "button", class: "chip chosen", "aria-label": `Not only ${name}`, onclick: () => choose(name, false) }, short(name), " ✕")));
  narrow();
  if (wasTyping) field.focus();
  const shown = $("filters").querySelector("details");
  shown.addEventListener("click", (event) => {  // what is typed next narrows the list
    if (event.target.closest("summary")) setTimeout(() => { if (shown.open) field.focus(); });
  });
  shown.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    shown.open = false;
    shown.querySelector("summary").focus();
  });
}
addEventListener("click", (event) => {
  const list = $("filters").querySelector("details[open]");
  if (list && !list.contains(event.target) && event.target.isConnected) list.open = false;
});

function showShelf() {
  const { documents, info } = state;
  $("start").hidden = info.pages > 0 || info.read_only;
  $("shelf").replaceChildren(...documents.slice(0, 60).map((one) =>
    h("button", { type: "button", onclick: () => go({ page: one.first }) },
      thumbnail(one.first, /\.(pdf|png|jpe?g|tiff?|webp)$/i.test(one.name), ""),
      short(one.name), h("small", {}, count(one.pages, "page")))));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value.trim();
  $("query").blur();
  go({ q: query, like: null, page: null, view: null });
});
$("by").addEventListener("change", () => go({ by: $("by").value }));
