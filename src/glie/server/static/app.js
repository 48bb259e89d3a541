// The page of `glie serve`. What is shown is in the address: view, q, by (how to search), like (a page),
// doc (several), page.

const $ = (id) => document.getElementById(id);
const COLOURS = ["#f2a73b", "#2fb3a8", "#e8628a", "#5b8def", "#9b74e0", "#7fae34", "#e8793d", "#3fb2d9", "#c9a227", "#b85c9e"];
const colour = (number) => COLOURS[number % COLOURS.length];

let info = null;
let documents = [];
let latest = { key: null, answer: null };  // the last search, and what it was for

// ---- making elements

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const svg = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const percent = (share) => `${(100 * share).toFixed(1)}%`;
function size(bytes) {
  for (const [unit, one] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    if (bytes >= one) return `${(bytes / one).toFixed(bytes / one < 10 ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(bytes)} bytes`;
}
// the server counts characters, the browser UTF-16 units
const characters = (text) => Array.from(text);

// ---- asking the server

async function api(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `glie serve` still running?");
  }
  if (response.status === 401 && path !== "/session") {
    await askToken();
    return api(path, options);
  }
  const body = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Error(body.error ?? `The server answered ${response.status}.`);
  return body;
}
const post = (path, body, options = {}) =>
  api(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...options });
const pagePath = (id, rest = "") => `/pages/${encodeURIComponent(id)}${rest}`;

let askingToken = null;
function askToken() {
  askingToken ??= new Promise((known) => {
    const dialog = $("login");
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    $("login-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await post("/session", { token: $("token").value });
        dialog.close();
        askingToken = null;
        known();
      } catch (error) {
        $("login-note").textContent = error.message;
        $("token").select();
      }
    });
    dialog.showModal();
  });
  return askingToken;
}

// ---- the address

const address = () => new URLSearchParams(location.search);
function go(changes, { replace = false } = {}) {
  const wanted = address();
  for (const [name, value] of Object.entries(changes)) {
    wanted.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one) wanted.append(name, one);
  }
  const url = wanted.size ? `/?${wanted}` : "/";
  history[replace ? "replaceState" : "pushState"](null, "", url);
  route();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-link]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  route();
});
addEventListener("popstate", () => route());

function route() {
  if (info === null) return;  // the index is not known yet; this runs again when it is
  const at = address();
  const view = ["budget", "geometry"].includes(at.get("view")) ? at.get("view") : "search";
  for (const name of ["search", "budget", "geometry"]) $(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = { search: at.get("q"), budget: "Budget", geometry: "Geometry" }[view];
  document.title = [title, info.name, "glie"].filter(Boolean).join(" · ");
  if (view === "search") showSearch(at);
  if (view === "budget") showBudget();
  if (view === "geometry") showGeometry(at.get("page"));
  if (view === "search" && at.get("page")) showPage(at.get("page"), at.get("q") ?? "");
  else if ($("viewer").open) $("viewer").close();
}

// ---- searching

function showSearch(at) {
  const query = at.get("q") ?? "";
  const like = query ? null : at.get("like");
  const mode = info.encoder_state === "none" ? "lexical" : at.get("by");
  const chosen = at.getAll("doc");
  if (document.activeElement !== $("query")) $("query").value = query;
  $("by").value = at.get("by") ?? "";
  $("search").classList.toggle("asked", Boolean(query || like));
  showFilters(chosen);
  $("shelf").hidden = Boolean(query || like);
  if (!query && !like) {
    latest = { key: null, answer: null };
    $("results").replaceChildren();
    $("said").replaceChildren();
    showShelf();
    return;
  }
  const asked = { ...(like ? { like } : { query, mode }), top: 24, documents: chosen.length ? chosen : null };
  const key = JSON.stringify([asked, info.generation]);
  if (key !== latest.key) search(key, asked);
}

async function search(key, asked) {
  latest = { key, answer: null };
  const slow = setTimeout(() => {
    if (latest.key === key) $("said").textContent = info.encoder_state === "loading" ? "Loading the encoder…" : "Searching…";
  }, 150);
  try {
    const answer = await post("/search", asked);
    if (latest.key !== key) return;
    latest.answer = answer;
    const best = Math.max(...answer.hits.map((hit) => hit.score), 1e-9);
    $("results").replaceChildren(...answer.hits.map((hit) => card(hit, best)));
    $("said").replaceChildren(h("span", {}, answer.hits.length ? `${count(answer.hits.length, "page")}${asked.like ? ` like ${asked.like}` : ""}, best first` : info.pages ? "No page matches." : "No pages: the index is empty."), badge(answer.cost));
  } catch (error) {
    if (latest.key !== key) return;
    latest.key = null;
    $("results").replaceChildren();
    $("said").replaceChildren(h("span", { class: "wrong" }, error.message));
  } finally {
    clearTimeout(slow);
  }
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

function card(hit, best) {
  return h("li", {},
    h("button", { type: "button", class: "card", onclick: () => go({ page: hit.id }), "data-id": hit.id },
      thumbnail(hit.id, hit.picture, hit.snippet),
      h("span", { class: "name" }, hit.document ?? hit.id),
      h("span", { class: "place" }, hit.page === null ? null : `Page ${hit.page}`,
        meter(hit, best), h("span", { title: "Score" }, hit.score.toFixed(2))),
      h("span", { class: "snippet" }, ...(hit.snippet ? marked(hit.snippet, hit.marks) : [h("span", { class: "muted" }, hit.note ?? "")]))));
}

// How good a page is beside the best one and, if words were searched too, how much of that they are.
function meter(hit, best) {
  const width = Math.max(4, 100 * hit.score / best);
  if (hit.words === null) return h("span", { class: "meter" }, h("i", { style: { width: `${width}%` } }));
  const words = hit.score > 0 ? Math.min(1, Math.max(0, hit.words / hit.score)) : 0;
  const told = `${Math.round(100 * words)}% words, ${Math.round(100 - 100 * words)}% meaning`;
  return h("span", { class: "meter", role: "img", "aria-label": told, title: told },
    h("i", { class: "words", style: { width: `${width * words}%` } }), h("i", { style: { width: `${width * (1 - words)}%` } }));
}

function marked(text, marks) {
  const letters = characters(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of marks) {
    parts.push(letters.slice(at, start).join(""), h("mark", {}, letters.slice(start, end).join("")));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}

function thumbnail(id, picture, text = "") {
  if (!picture) {
    const leaf = h("span", { class: "thumb leaf", "aria-hidden": "true" }, text);
    api(pagePath(id)).then((page) => { leaf.textContent = page.text.slice(0, 1500); }).catch(() => {});
    return leaf;
  }
  const frame = h("span", { class: "thumb" });
  const image = h("img", { src: pagePath(id, "/image?size=thumbnail"), alt: "", loading: "lazy", decoding: "async" });
  image.addEventListener("load", () => frame.classList.toggle("wide", image.naturalWidth > image.naturalHeight));
  image.addEventListener("error", () => { image.remove(); frame.classList.add("leaf"); frame.append(text); });
  frame.append(image);
  return frame;
}

function showFilters(chosen) {
  if (documents.length < 2) return $("filters").replaceChildren();
  const boxes = documents.map((document) => h("label", { title: count(document.pages, "page") },
    h("input", { type: "checkbox", value: document.name, checked: chosen.includes(document.name), onchange: () => {
      const now = [...$("filters").querySelectorAll("input:checked")].map((box) => box.value);
      go({ doc: now });
    } }), short(document.name)));
  const held = document.activeElement?.closest?.("#filters") ? document.activeElement.value : null;
  $("filters").replaceChildren(...boxes);
  if (held) $("filters").querySelector(`input[value="${CSS.escape(held)}"]`)?.focus();
}
const short = (name) => name.split("/").at(-1);

function showShelf() {
  $("shelf").replaceChildren(...documents.slice(0, 60).map((document) =>
    h("button", { type: "button", onclick: () => go({ page: document.first }) },
      thumbnail(document.first, /\.(pdf|png|jpe?g|tiff?|webp)$/i.test(document.name), ""),
      short(document.name), h("small", {}, count(document.pages, "page")))));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value.trim();
  $("query").blur();
  go({ q: query, like: null, page: null, view: null });
});
$("by").addEventListener("change", () => go({ by: $("by").value }));

// ---- one page, and why it matched

const shown = { id: null, query: null, page: null, heat: null, pinned: null, turn: 0 };  // turn: counts the views

async function showPage(id, query) {
  const viewer = $("viewer");
  if (!viewer.open) viewer.showModal();
  if (shown.id === id && shown.query === query) return;
  Object.assign(shown, { id, query, page: null, heat: null, pinned: null, turn: shown.turn + 1 });
  const { turn } = shown;  // answers to an earlier view, even of the same page, are dropped
  $("words").replaceChildren();
  $("found").replaceChildren();
  $("why-note").textContent = query ? "Looking for what matched…" : "";
  $("why-title").textContent = query ? "Why this page" : "This page";
  $("seen-by").hidden = !query;
  $("to-like").href = `/?${new URLSearchParams({ like: id })}`;
  $("to-map").href = `/?${new URLSearchParams({ view: "geometry", page: id })}`;
  $("previous").disabled = $("next").disabled = true;
  try {
    const page = await api(pagePath(id));
    if (shown.turn !== turn) return;
    shown.page = page;
    $("viewer-title").textContent = page.document ?? page.id;
    $("number").textContent = page.page === null ? "" : `${page.page}${page.pages > 1 ? ` / ${page.pages}` : ""}`;
    $("previous").disabled = !page.previous;
    $("next").disabled = !page.next;
    drawPage(page);
  } catch (error) {
    if (shown.turn !== turn) return;
    $("viewer-title").textContent = id;
    $("stage").replaceChildren(h("p", { class: "none" }, error.message));
    $("why-note").textContent = "";
    return;
  }
  if (query) await showHeat();
  else $("why-note").textContent = "Search for something to see where a page matches.";
}

function drawPage(page) {
  const stage = $("stage");
  stage.scrollTop = 0;
  stage.classList.toggle("unread", page.picture);
  if (page.picture) {
    const image = h("img", { alt: `${page.document}, page ${page.page}`, src: pagePath(page.id, "/image") });
    image.addEventListener("load", () => stage.classList.remove("unread"));
    image.addEventListener("error", () => stage.replaceChildren(h("p", { class: "none" }, page.note ?? "The page cannot be drawn.")));
    stage.replaceChildren(h("div", { class: "leafwrap" }, image, h("div", { class: "heat", "aria-hidden": "true" })));
  } else if (page.text) {
    stage.replaceChildren(h("div", { class: "leaftext" }, page.text));
  } else {
    stage.replaceChildren(h("p", { class: "none" }, page.note ?? "There is nothing to show of this page."));
  }
}

async function showHeat() {
  const { id, query, turn } = shown;
  const vectors = document.querySelector("input[name=vectors]:checked").value;
  let heat;
  try {
    heat = await api(pagePath(id, `/heatmap?${new URLSearchParams({ query, vectors })}`));
  } catch (error) {
    if (shown.turn === turn) $("why-note").textContent = error.message;
    return;
  }
  if (shown.turn !== turn) return;
  shown.heat = heat;
  if (heat.kind === "none") {
    $("why-note").textContent = heat.reason;
    return;
  }
  if (heat.kind === "spans" && !shown.page.picture) layOut(heat);
  $("words").replaceChildren(...heat.words.map((word, number) => h("button", {
    type: "button", class: word.common ? "common" : null, "aria-pressed": "false", style: { "--word": colour(number) },
    "aria-label": `${word.text}: adds ${word.score.toFixed(2)} to the score`,
    onpointerenter: (event) => event.pointerType === "mouse" && light(number),
    onpointerleave: (event) => event.pointerType === "mouse" && light(shown.pinned),
    onfocus: () => light(number),
    onblur: () => light(shown.pinned),
    onclick: () => { shown.pinned = shown.pinned === number ? null : number; light(shown.pinned); },
  }, word.text, h("small", {}, word.score.toFixed(2)))));
  light(shown.pinned, true);
}

// A text as words, each an element that can be warm.
function layOut(heat) {
  const letters = characters(shown.page.text);
  const parts = [];
  let at = 0;
  heat.places.forEach(([start, end], place) => {
    parts.push(letters.slice(at, start).join(""), h("span", { "data-place": place }, letters.slice(start, end).join("")));
    at = end;
  });
  $("stage").querySelector(".leaftext").replaceChildren(...parts, letters.slice(at).join(""));
}

// Show where one word is warm, or where each word is warmest.
function light(active, move = false) {
  const { heat, page } = shown;
  if (!heat || heat.kind === "none") return;
  [...$("words").children].forEach((button, number) => button.setAttribute("aria-pressed", String(number === active)));
  const warm = [];
  const some = heat.words.some((word) => !word.common);  // words that are not stop words
  heat.words.forEach((word, number) => {
    if (active !== null ? number !== active : word.common && some) return;
    const chosen = active === null ? word.warm.filter((one) => one.heat > .5).slice(0, 3) : word.warm;
    for (const one of chosen) warm.push({ ...one, colour: colour(number) });
  });
  if (heat.kind === "boxes") {
    $("stage").querySelector(".heat")?.replaceChildren(...warm.map((one) => {
      const [left, top, right, bottom] = heat.places[one.place];
      const grow = heat.labels[one.place] ? .004 : 0;  // a margin around words, none around patches
      return h("i", { "data-place": one.place, style: {
        left: `${100 * (left - grow)}%`, top: `${100 * (top - grow)}%`,
        width: `${100 * (right - left + 2 * grow)}%`, height: `${100 * (bottom - top + 2 * grow)}%`,
        background: one.colour, opacity: String(.2 + .65 * one.heat),
        "box-shadow": grow ? `0 0 ${4 + 10 * one.heat}px ${1 + 3 * one.heat}px ${one.colour}66` : "none",
      } });
    }));
  } else {
    for (const span of $("stage").querySelectorAll("[data-place]")) span.style.background = "";
    for (const one of warm) {
      const span = $("stage").querySelector(`[data-place="${one.place}"]`);
      if (span) span.style.background = `color-mix(in srgb, ${one.colour} ${Math.round(20 + 55 * one.heat)}%, transparent)`;
    }
  }
  if (move) bringIntoView(warm);
  $("why-note").textContent = active === null ? (page.note ?? "Each word is marked where it matches best. Point at a word, or focus it, to see its matches alone.") : "";
  const word = active === null ? null : heat.words[active];
  $("found").style.setProperty("--word", active === null ? "" : colour(active));
  $("found").replaceChildren(...distinct(word?.warm ?? [], heat.labels).slice(0, 6).map((one) => h("li", {},
    h("b", {}, one.label, one.times > 1 ? h("small", {}, ` × ${one.times}`) : null),
    h("span", { class: "meter" }, h("i", { style: { width: `${Math.max(0, 100 * one.similarity)}%` } })),
    h("small", { title: "cosine" }, one.similarity.toFixed(2)))));
}

// The words of the page that match a word of the question, each once.
function distinct(warm, labels) {
  const found = new Map();
  for (const one of warm) {
    const label = labels[one.place].replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "").toLowerCase() || labels[one.place] || `patch ${one.place + 1}`;
    if (found.has(label)) found.get(label).times += 1;
    else found.set(label, { label, similarity: one.similarity, times: 1 });
  }
  return [...found.values()];
}

function bringIntoView(warm) {
  const best = warm.toSorted((a, b) => b.similarity - a.similarity)[0];
  const stage = $("stage");
  const spot = best && stage.querySelector(`[data-place="${best.place}"]`);
  if (!spot) return;
  const image = stage.querySelector(".leafwrap img");
  const scroll = () => {
    const y = spot.getBoundingClientRect().top - stage.getBoundingClientRect().top + stage.scrollTop;
    if (y > stage.clientHeight * .85) stage.scrollTo({ top: y - stage.clientHeight * .4 });
  };
  if (image && !image.complete) image.addEventListener("load", scroll, { once: true });
  else scroll();
}

const turn = (way) => shown.page?.[way] && go({ page: shown.page[way] }, { replace: true });
$("previous").addEventListener("click", () => turn("previous"));
$("next").addEventListener("click", () => turn("next"));
$("close").addEventListener("click", () => $("viewer").close());
$("viewer").addEventListener("close", () => {
  const id = shown.id;
  Object.assign(shown, { id: null, query: null, page: null, heat: null, turn: shown.turn + 1 });
  $("stage").replaceChildren();
  if (address().get("page") && !address().get("view")) go({ page: null });
  $("results").querySelector(`[data-id="${CSS.escape(id ?? "")}"]`)?.focus();
});
for (const choice of document.querySelectorAll("input[name=vectors]")) choice.addEventListener("change", showHeat);

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=radio], [type=checkbox]), select, textarea");
  if ($("viewer").open) {
    if (event.target.matches("input[type=radio]")) return;
    if (event.key === "ArrowLeft") turn("previous");
    else if (event.key === "ArrowRight") turn("next");
    else if (/^[1-9]$/.test(event.key)) $("words").children[event.key - 1]?.focus();
    else return;
    event.preventDefault();
  } else if (!typing && !document.querySelector("dialog[open]")) {
    if (event.key === "/") {
      if ($("search").hidden) go({ view: null, page: null });
      $("query").focus();
      $("query").select();
    } else if (["ArrowDown", "ArrowUp", "j", "k"].includes(event.key) && !$("search").hidden) {
      const cards = [...document.querySelectorAll("#results .card")];
      if (!cards.length || (event.key.startsWith("Arrow") && !document.activeElement.closest("#results"))) return;
      const at = cards.indexOf(document.activeElement);
      const way = event.key === "ArrowDown" || event.key === "j" ? 1 : -1;
      cards[Math.min(cards.length - 1, Math.max(0, at + way))].focus();
    } else return;
    event.preventDefault();
  }
});

// ---- documents

$("manage").addEventListener("click", () => { listDocuments(); $("shelves").showModal(); });
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
$("files").addEventListener("change", () => { upload([...$("files").files]); $("files").value = ""; });

function listDocuments() {
  if (info === null) return;  // the index is not known yet; refresh() lists them then
  $("upload").hidden = info.read_only;
  $("listed").replaceChildren(...documents.map((document) => h("li", {},
    h("span", {}, document.name), h("small", {}, count(document.pages, "page")),
    info.read_only ? null : h("button", { type: "button", class: "quiet", "aria-label": `Delete ${document.name}`, onclick: (event) => remove(document, event.target) }, "Delete"))));
}

// The first click asks, the second deletes.
async function remove(document, button) {
  if (!button.dataset.sure) {
    button.dataset.sure = "yes";
    button.textContent = "Really?";
    button.addEventListener("blur", () => { delete button.dataset.sure; button.textContent = "Delete"; }, { once: true });
    return;
  }
  button.disabled = true;
  try {
    const gone = await api(`/documents/${encodeURIComponent(document.name)}`, { method: "DELETE" });
    $("uploaded").replaceChildren(`${document.name} deleted, ${count(gone.deleted, "page")}.`);
  } catch (error) {
    $("uploaded").replaceChildren(h("span", { class: "wrong" }, error.message));
  }
  await refresh();
}

async function upload(files) {
  if (!files.length) return;
  const form = new FormData();
  for (const file of files) form.append("files", file);
  $("uploaded").replaceChildren();
  $("progress").hidden = false;
  $("bar").removeAttribute("value");
  $("doing").textContent = `Sending ${files.length === 1 ? files[0].name : count(files.length, "file")}…`;
  try {
    const response = await fetch("/documents", { method: "POST", body: form, headers: { accept: "application/x-ndjson" } });
    if (!response.ok) throw new Error((await response.json()).error);
    const done = await lastEvent(response.body, (event) => {
      $("bar").value = event.pages ? event.done / event.pages : 0;
      $("doing").textContent = `${event.document}: ${event.done} of ${count(event.pages, "page")}`;
    });
    if (done.event === "error") throw new Error(done.error);
    const said = [];
    if (done.documents.length) said.push(h("span", {}, `${done.documents.join(", ")} added, ${count(done.pages, "page")}.`));
    if (done.unchanged.length) said.push(h("span", {}, `${done.unchanged.join(", ")}: already in the index.`));
    $("uploaded").replaceChildren(...said, ...done.problems.map((line) => h("span", { class: "wrong" }, line)));
  } catch (error) {
    $("uploaded").replaceChildren(h("span", { class: "wrong" }, error.message));
  }
  $("progress").hidden = true;
  await refresh();
}

// Reads a line of JSON for each step; returns the last.
async function lastEvent(body, step) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { event: "error", error: "The server stopped before it was done; send it again." };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return event.event === "progress" ? { event: "error", error: "The server stopped before it was done; send it again." } : event;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      event = JSON.parse(line);
      if (event.event === "progress") step(event);
    }
  }
}

for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
addEventListener("dragenter", (event) => {
  if (info?.read_only || !event.dataTransfer?.types.includes("Files")) return;
  document.body.classList.add("dropping");
  if (!document.querySelector("dialog[open]")) $("manage").click();
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  if (!info?.read_only) upload([...event.dataTransfer.files]);
});

// ---- plots

// Draws into a box at its width, and again when that changes.
function plot(draw, label) {
  const box = h("div", { class: "plot", role: "group", "aria-label": label });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) { width = now; box.querySelector("svg")?.remove(); box.append(draw(now, box)); }
  }).observe(box);
  return box;
}

function tip(box, x, y, text) {
  box.querySelector(".tip")?.remove();
  if (!text) return;
  const style = getComputedStyle(box);
  box.append(h("div", { class: "tip", style: { left: `${x + parseFloat(style.paddingLeft)}px`, top: `${y + parseFloat(style.paddingTop)}px` } }, text));
}

function measuring(survey, again) {
  if (survey.state === "running") {
    return h("div", { class: "tile progress" }, h("progress", { max: 1, value: survey.share, "aria-label": "Measuring" }), h("p", { class: "muted", role: "status" }, `Measuring: ${survey.doing}`));
  }
  const why = survey.state === "failed" ? h("p", { class: "wrong", role: "status" }, `It could not be measured: ${survey.doing}`) : null;
  return h("div", {}, why, h("button", { type: "button", onclick: async () => { await post("/survey", {}); again(); } }, "Measure this corpus"),
    h("p", { class: "muted" }, "This encodes a sample of pages again and takes a minute or two. Nothing is stored."));
}

let polling = null;
async function survey(draw) {
  clearTimeout(polling);
  const found = await api("/survey");
  draw(found);
  if (found.state === "running") polling = setTimeout(() => survey(draw), 700);
}

// ---- the budget

function showBudget() {
  const body = $("budget-body");
  if (!info.pages) return body.replaceChildren(h("p", { class: "muted" }, "The index is empty."));
  survey((found) => {
    if (found.state !== "done") body.replaceChildren(measuring(found, showBudget));
    else drawBudget(body, found);
  }).catch((error) => body.replaceChildren(h("p", { class: "wrong" }, error.message)));
}

function drawBudget(body, found) {
  const now = { ...found.current, bytes_per_page: info.bytes_per_page, now: true };
  const whole = found.budgets.at(-1);
  const others = found.budgets.filter((row) => row === whole || (row.budget !== info.budget && row.bytes_per_page < whole.bytes_per_page));
  const rows = [...others, now].sort((a, b) => a.bytes_per_page - b.bytes_per_page);
  let chosen = rows.indexOf(now);
  let pages = info.pages;
  const tiles = h("div", { class: "tiles", "aria-live": "polite" });
  const slider = h("input", { type: "range", min: 3, max: 8, step: .25, value: Math.min(8, Math.max(3, Math.log10(pages))), "aria-label": "Pages" });
  const amount = h("output", {});
  const tell = () => {
    const row = rows[chosen];
    tiles.replaceChildren(...[
      [row === whole ? "all vectors" : `${Math.round(row.bytes_per_page).toLocaleString("en")} bytes`, row.now ? "a page, as in this index" : "a page"],
      [percent(row.overlap), "of the best five pages found"],
      [percent(row.same_best), "have the same best page"],
      [size(row.bytes_per_page * pages), `for ${count(Math.round(pages), "page")}`],
      [row === whole ? "1×" : `${(whole.bytes_per_page / row.bytes_per_page).toFixed(0)}×`, "smaller than all vectors"],
    ].map(([number, what]) => h("div", { class: "tile" }, h("b", {}, number), h("span", {}, what))));
    amount.textContent = count(Math.round(pages), "page");
    for (const spot of picture.querySelectorAll(".spot")) spot.classList.toggle("on", Number(spot.dataset.row) === chosen);
  };
  const picture = plot((width) => budgetPlot(width, rows, (row) => { chosen = row; tell(); }), "Quality against bytes a page");
  slider.addEventListener("input", () => {
    const power = 10 ** Number(slider.value);
    const digit = 10 ** Math.floor(Math.log10(power));
    pages = Math.round(power / digit) * digit;
    tell();
  });
  body.replaceChildren(
    h("div", { class: "legend" }, h("span", {}, h("i", {}), "best five pages found again"), h("span", {}, h("i", { class: "best" }), "best page the same")),
    picture, tiles, h("label", { class: "slider" }, "If there were", slider, amount),
    h("div", { class: "tablewrap" }, h("table", {},
      h("thead", {}, h("tr", {}, ...["", "bytes a page", "vectors", "codewords", "top 5 kept", "best kept", "score error"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...rows.map((row) => h("tr", { class: row.now ? "now" : null },
        ...[row.now ? "this index" : row === whole ? "uncompressed" : `budget ${row.budget.toLocaleString("en")}`, Math.round(row.bytes_per_page).toLocaleString("en"),
          row.k === null ? "all" : `${row.k} × ${row.dtype}`, row.codewords || "", percent(row.overlap), percent(row.same_best), row.error.toFixed(3)].map((cell) => h("td", {}, String(cell)))))))),
    h("p", { class: "muted" }, `Measured on ${count(found.sampled, "page")} of this index. Questions made of pages are easier than real ones, but the same for all budgets.`,
      found.stale ? " The index has changed since. " : " ",
      found.stale ? h("button", { type: "button", class: "quiet", onclick: async () => { await post("/survey", {}); showBudget(); } }, "Measure again") : null));
  tell();
}

function budgetPlot(width, rows, choose) {
  const height = Math.max(280, Math.min(430, width * .5));
  const [left, right, top, bottom] = [52, 26, 30, 46];
  const low = Math.min(...rows.map((row) => Math.min(row.overlap, row.same_best)));
  const floor = Math.max(0, Math.floor(low * 10 - .3) / 10);
  const ends = [rows[0].bytes_per_page * .85, rows.at(-1).bytes_per_page * 1.15].map(Math.log10);
  const x = (bytes) => left + (Math.log10(bytes) - ends[0]) / (ends[1] - ends[0]) * (width - left - right);
  const y = (share) => top + (1 - share) / (1 - floor) * (height - top - bottom);
  const path = (key) => rows.map((row, i) => `${i ? "L" : "M"}${x(row.bytes_per_page).toFixed(1)},${y(row[key]).toFixed(1)}`).join("");
  const shares = Array.from({ length: 6 }, (_, i) => floor + (1 - floor) * i / 5);
  const marks = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5].filter((b) => Math.log10(b) > ends[0] && Math.log10(b) < ends[1] && (width > 560 || /^1/.test(String(b))));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height },
    ...shares.map((share) => svg("g", {}, svg("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      svg("text", { x: left - 10, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}%`))),
    ...marks.map((bytes) => svg("text", { x: x(bytes), y: height - bottom + 22, "text-anchor": "middle" }, bytes >= 1e3 ? `${bytes / 1e3} KB` : `${bytes}`)),
    svg("text", { class: "axis", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "bytes a page"),
    svg("path", { class: "line best", d: path("same_best") }), svg("path", { class: "line", d: path("overlap") }),
    ...rows.map((row, i) => svg("g", { class: "spot", tabindex: 0, role: "button", "data-row": i,
      "aria-label": `${Math.round(row.bytes_per_page)} bytes a page${row.now ? ", this index" : ""}: ${percent(row.overlap)} of the best five pages, ${percent(row.same_best)} of the best`,
      onpointerenter: () => choose(i), onfocus: () => choose(i) },
    svg("rect", { x: x(row.bytes_per_page) - 18, y: top, width: 36, height: height - top - bottom, fill: "transparent" }),
    svg("line", { class: "guide", x1: x(row.bytes_per_page), x2: x(row.bytes_per_page), y1: top, y2: height - bottom }),
    svg("circle", { class: "dot best", cx: x(row.bytes_per_page), cy: y(row.same_best), r: 4 }),
    svg("circle", { class: "dot", cx: x(row.bytes_per_page), cy: y(row.overlap), r: 6 }),
    row.now ? svg("circle", { class: "ring", cx: x(row.bytes_per_page), cy: y(row.overlap), r: 12 }) : null,
    row.now ? svg("text", { class: "here", x: x(row.bytes_per_page), y: y(row.overlap) - 20 < 14 ? y(row.overlap) + 32 : y(row.overlap) - 20, "text-anchor": "middle" }, "this index") : null)));
}

// ---- the geometry

let mapped = null;

function showGeometry(id) {
  if (!documents.length) return $("map").replaceChildren(h("p", { class: "muted" }, "The index names no documents."));
  const current = documents.find((document) => id?.startsWith(`${document.name}#`)) ?? documents[0];
  $("pick-document").replaceChildren(...documents.map((document) => h("option", { value: document.name, selected: document === current }, document.name)));
  pickPages(current, id ?? current.first);
  if (mapped !== (id ?? current.first)) showMap(id ?? current.first);
  survey((found) => {
    if (found.state === "done") drawShape($("shape"), found);
    else $("shape").replaceChildren(measuring(found, () => showGeometry(address().get("page"))));
  }).catch((error) => $("shape").replaceChildren(h("p", { class: "wrong" }, error.message)));
}

async function pickPages(current, id) {
  const { pages } = await api(`/documents/${encodeURIComponent(current.name)}`);
  const number = (one) => one.startsWith(`${current.name}#`) ? one.slice(current.name.length + 1) : one;
  $("pick-page").replaceChildren(...pages.map((one) => h("option", { value: one, selected: one === id }, number(one))));
}
$("pick-document").addEventListener("change", (event) => go({ page: documents.find((d) => d.name === event.target.value).first }, { replace: true }));
$("pick-page").addEventListener("change", (event) => go({ page: event.target.value }, { replace: true }));

async function showMap(id) {
  mapped = id;
  $("map").setAttribute("aria-busy", "true");
  try {
    const found = await api(pagePath(id, "/geometry"));
    if (mapped === id) drawMap($("map"), found);
  } catch (error) {
    if (mapped === id) $("map").replaceChildren(h("p", { class: "wrong" }, error.message));
  }
  $("map").removeAttribute("aria-busy");
}

function drawMap(body, found) {
  const layers = { vectors: true, anchors: true, children: true };
  const picture = plot((width, box) => mapPlot(width, box, found), `Map of the vectors of ${found.id}`);
  const lengths = found.anchors.map((anchor) => anchor.length).filter((length) => length !== null);
  const tiles = [
    found.vectors.length ? [found.vectors.length, "vectors of the page"] : null,
    [found.anchors.length, "stored"],
    [found.children.length, "reconstructed"],
    [found.twonn === null ? "–" : found.twonn.toFixed(1), `intrinsic dimension${found.gaussian === null ? "" : ` (Gaussian ${found.gaussian.toFixed(1)}, uniform ${found.uniform.toFixed(1)})`}`],
    [found.norm_low.toFixed(3) === found.norm_high.toFixed(3) ? found.norm_low.toFixed(3) : `${found.norm_low.toFixed(3)}–${found.norm_high.toFixed(3)}`, "norm of the vectors"],
    lengths.length ? [`${Math.min(...lengths).toFixed(2)}–${Math.max(...lengths).toFixed(2)}`, "norm of a cluster's mean, before normalisation"] : null,
  ].filter(Boolean);
  body.replaceChildren(
    found.reason ? h("p", { class: "muted" }, `Only what is stored: ${found.reason}.`) : "",
    h("div", { class: "switches" }, ...[["vectors", "the page's vectors"], ["anchors", "stored"], ["children", "reconstructed"]].map(([name, label]) =>
      h("label", {}, h("input", { type: "checkbox", checked: true, onchange: (event) => {
        layers[name] = event.target.checked;
        for (const layer of picture.querySelectorAll(`[data-layer=${name}]`)) layer.setAttribute("visibility", layers[name] ? "visible" : "hidden");
      } }), ` ${label}`))),
    picture,
    h("p", { class: "muted" }, `The plane shows ${percent(found.explained)} of the variance.`),
    h("div", { class: "tiles" }, ...tiles.map(([number, what]) => h("div", { class: "tile" }, h("b", {}, String(number)), h("span", {}, what)))));
}

function mapPlot(width, box, found) {
  const height = Math.max(300, Math.min(560, width * .62));
  const all = [...found.vectors, ...found.anchors, ...found.children].map((one) => one.at);
  const [xs, ys] = [all.map((p) => p[0]), all.map((p) => p[1])];
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((width - 40) / (x1 - x0 || 1), (height - 40) / (y1 - y0 || 1));
  const x = (p) => width / 2 + (p[0] - (x0 + x1) / 2) * scale;
  const y = (p) => height / 2 - (p[1] - (y0 + y1) / 2) * scale;
  const say = (one, text) => ({ onpointerenter: () => tip(box, x(one.at), y(one.at), text), onpointerleave: () => tip(box) });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${found.vectors.length} vectors, ${found.anchors.length} stored, ${found.children.length} reconstructed` },
    svg("g", { "data-layer": "children" }, ...found.children.map((one) => svg("g", say(one, "reconstructed"),
      svg("line", { x1: x(one.at), y1: y(one.at), x2: x(found.anchors[one.anchor].at), y2: y(found.anchors[one.anchor].at), stroke: colour(one.anchor), "stroke-opacity": .13 }),
      svg("path", { d: `M${x(one.at)},${y(one.at) - 5}l5,5l-5,5l-5,-5z`, fill: "none", stroke: colour(one.anchor), "stroke-width": 1.4, "stroke-opacity": .75 })))),
    svg("g", { "data-layer": "vectors" }, ...found.vectors.map((one) => svg("circle", { class: "mapdot", cx: x(one.at), cy: y(one.at), r: 4, fill: colour(one.anchor), "fill-opacity": .7, ...say(one, one.label || "a vector") }))),
    svg("g", { "data-layer": "anchors" }, ...found.anchors.map((one, number) => svg("g", say(one, `stored, stands for ${count(one.count, "vector")}`),
      svg("circle", { cx: x(one.at), cy: y(one.at), r: 11, fill: "var(--surface)", "fill-opacity": .75, stroke: colour(number), "stroke-width": 3.5 }),
      svg("circle", { cx: x(one.at), cy: y(one.at), r: 3, fill: colour(number) })))));
}

function drawShape(body, found) {
  const shape = found.geometry;
  const rows = [["twonn", "this corpus", "var(--accent)"], ["gaussian", "Gaussian", "#d08a2a"], ["uniform", "uniform", "#9aa3aa"]];
  const fine = (spread) => spread.median === null ? "–" : `${spread.median.toFixed(1)} (${spread.low.toFixed(1)} to ${spread.high.toFixed(1)})`;
  body.replaceChildren(plot((width, box) => shapePlot(width, box, shape, rows), "Intrinsic dimension, a dot a page"),
    h("div", { class: "tablewrap" }, h("table", {},
      h("thead", {}, h("tr", {}, ...["", "median (range)"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...[...rows.map(([key, name]) => [`dimension, ${name}`, fine(shape[key])]),
        ["norm", `${shape.norm.low.toFixed(3)} to ${shape.norm.high.toFixed(3)}`], ["vectors a page", `${Math.round(shape.vectors.median)} (${shape.vectors.low} to ${shape.vectors.high})`], ["numbers a vector", shape.dims.join(", ")]]
        .map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", {}, value)))))),
    h("p", { class: "muted" }, `Measured on ${count(found.sampled, "page")}.`));
}

function shapePlot(width, box, shape, rows) {
  const [left, right, top, row] = [96, 20, 14, 56];
  const height = top + row * rows.length + 34;
  const most = Math.max(1, ...rows.map(([key]) => shape[key].high ?? 0)) * 1.05;
  const x = (value) => left + value / most * (width - left - right);
  const step = [1, 2, 5, 10, 20, 50].find((one) => most / one <= (width > 560 ? 12 : 6)) ?? 100;
  const ticks = Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Intrinsic dimension of each page and of its two controls" },
    ...ticks.map((value) => svg("g", {}, svg("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: height - 30 }), svg("text", { x: x(value), y: height - 10, "text-anchor": "middle" }, String(value)))),
    ...rows.map(([key, name, fill], i) => svg("g", {},
      svg("text", { class: "axis", x: left - 14, y: top + row * (i + .5) + 4, "text-anchor": "end" }, name),
      ...shape.each.filter((page) => page[key] !== null).map((page, n) => {
        const [cx, cy] = [x(page[key]), top + row * (i + .5) + ((n * 7) % 11 - 5) * 2.6];
        return svg("circle", { class: "mapdot", cx, cy, r: 4, fill, "fill-opacity": .55, onpointerenter: () => tip(box, cx, cy, `${page.id}: ${page[key].toFixed(1)}`), onpointerleave: () => tip(box) });
      }),
      shape[key].median === null ? null : svg("line", { x1: x(shape[key].median), x2: x(shape[key].median), y1: top + row * i + 8, y2: top + row * (i + 1) - 8, stroke: "var(--ink)", "stroke-width": 2 }))));
}

// ---- the beginning

async function refresh() {
  [info, { documents }] = await Promise.all([api("/info"), api("/documents")]);
  $("name").textContent = info.name.replace(/\.glie$/, "");
  const each = info.bytes_per_page === null ? "" : `, ${Math.round(info.bytes_per_page).toLocaleString("en")} bytes a page`;
  $("holds").textContent = info.pages ? `${count(info.pages, "page")} in ${count(info.documents, "document")}${each}` : "The index is empty. Add documents to begin.";
  $("weight").textContent = info.compression === null ? `glie ${info.version}` : `glie ${info.version} · ${size(info.bytes)} for ${count(info.pages, "page")}, ${info.compression.toFixed(0)} times smaller than their vectors · ${info.encoder ?? "no encoder named"}`;
  $("by").hidden = !info.pages_with_text || info.encoder_state === "none";
  if (info.encoder_state === "none" && !info.pages_with_text) {
    $("query").disabled = true;
    $("query").placeholder = "This index names no encoder: search it with vectors, POST /search";
  }
  if ($("shelves").open) listDocuments();
  route();
}

refresh().then(() => { if (!address().size && matchMedia("(pointer: fine)").matches) $("query").focus(); })
  .catch((error) => { $("said").replaceChildren(h("span", { class: "wrong" }, error.message)); });
