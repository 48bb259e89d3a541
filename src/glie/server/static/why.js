// Why a page matched: what its score is made of, and where on the page each word of the question is.

import { $, colour, h, wait } from "./elements.js";
import { latest } from "./results.js";
import { api, pagePath } from "./server.js";
import { layOut, shown } from "./viewer.js";

export function forget(query) {
  for (const id of ["words", "found", "sum"]) $(id).replaceChildren();
  $("ranked").textContent = "";
  $("why-note").replaceChildren(query ? wait("Looking for what matched…") : "");
  $("why-title").textContent = query ? "Why this page" : "This page";
  $("seen-by").hidden = !query;
}

const chosen = () => document.querySelector("input[name=vectors]:checked").value;

export async function explain() {
  if (!shown.query) {
    $("why-note").textContent = "Search for something to see where a page matches.";
    return;
  }
  const { id, query, turn } = shown;
  const ask = (vectors) => api(pagePath(id, `/heatmap?${new URLSearchParams({ query, vectors })}`));
  let heat;
  try {
    const vectors = chosen();
    heat = await ask(vectors);
    if (vectors === "index") shown.ranked = heat;
    else shown.ranked ??= await ask("index");
  } catch (error) {
    if (shown.turn === turn) $("why-note").textContent = error.message;
    return;
  }
  if (shown.turn !== turn) return;
  shown.heat = heat;
  showSum();
  if (heat.kind === "none") $("why-note").textContent = heat.reason;
  if (heat.kind === "spans" && !shown.page.picture) layOut(heat);
  const adds = contributions();
  $("words").replaceChildren(...heat.words.map((word, number) => h("button", {
    type: "button", class: word.common ? "common" : null, "aria-pressed": "false", style: { "--word": colour(number) },
    "aria-label": `${word.text}: adds ${adds[number]} to the score`,
    onpointerenter: (event) => event.pointerType === "mouse" && light(number),
    onpointerleave: (event) => event.pointerType === "mouse" && light(shown.pinned),
    onfocus: () => light(number),
    onblur: () => light(shown.pinned),
    onclick: () => { shown.pinned = shown.pinned === number ? null : number; light(shown.pinned); },
  }, word.text, h("small", {}, adds[number]))));
  light(shown.pinned, true);
}
addEventListener("answered", () => { if (shown.id && shown.heat) explain(); });  // the page came before the answer

// ---- the score

const hitShown = () => latest.answer?.hits.find((hit) => hit.id === shown.id) ?? null;
const total = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

// Numbers with two decimals that add up to their sum as it is shown.
function rounded(numbers, sum = total(numbers)) {
  const cents = numbers.map((one) => Math.floor(100 * one + 1e-9));
  let left = Math.round(100 * sum) - total(cents);
  const order = numbers.map((one, at) => [100 * one - cents[at], at]).sort((a, b) => b[0] - a[0]);
  for (const [, at] of order) if (left > 0) { cents[at] += 1; left -= 1; }
  return cents.map((one) => (one / 100).toFixed(2));
}

// What each word of the question adds to the score, by its words and by meaning.
function parts() {
  const hit = hitShown();
  const { words } = shown.ranked;
  const scale = (values, sum) => { const all = total(values); return values.map((one) => all > 0 ? one * sum / all : 0); };
  const late = words.map((word) => word.score);
  if (!hit) return { words: words.map(() => 0), meaning: late, hit };
  if (hit.words === null) return { words: words.map(() => 0), meaning: scale(late, hit.score), hit };
  return { words: scale(words.map((word) => word.by_words), hit.words), meaning: scale(late, hit.meaning), hit };
}

function contributions() {
  if (chosen() === "document") return rounded(shown.heat.words.map((word) => word.score));
  const { words, meaning, hit } = parts();
  const sums = words.map((one, at) => one + meaning[at]);
  return rounded(sums, hit && Math.abs(total(sums) - hit.score) < .005 ? hit.score : total(sums));
}

function showSum() {
  const hit = hitShown();
  const late = total(shown.ranked.words.map((word) => word.score));
  if (chosen() === "document" && shown.heat.kind !== "none") {
    const all = total(shown.heat.words.map((word) => word.score));
    $("ranked").textContent = `With all its vectors, encoded again: a MaxSim of ${all.toFixed(2)}. By what the index stores it is ${late.toFixed(2)}, and that is what ranked the page.`;
    $("sum").replaceChildren();
    return;
  }
  if (!hit) {
    $("ranked").textContent = latest.answer ? `Not among the ${latest.answer.hits.length} pages that were found. Its MaxSim is ${late.toFixed(2)}.` : "";
    $("sum").replaceChildren();
    return;
  }
  const { mode, reranked, hits } = latest.answer;
  const by = { hybrid: "by words and meaning", late: "by meaning", lexical: "by words" }[mode];
  const vectors = mode === "lexical" ? "" : reranked ? " Meaning was scored with the vectors that the index reconstructs." : " Meaning was scored with the stored vectors.";
  $("ranked").textContent = `Number ${hit.rank} of ${hits.length}, ${by}.${vectors}`;
  const known = hit.words === null ? [["MaxSim", hit.score, "meaning"]] : [["Words", hit.words, "words"], ["Meaning", hit.meaning, "meaning"]].filter(([name]) => mode === "hybrid" || name === "Words");
  const numbers = rounded(known.map(([, value]) => value), hit.score);
  const most = Math.max(hit.score, ...known.map(([, value]) => value), 1e-9);
  $("sum").replaceChildren(
    ...known.map(([name, value, kind], at) => h("div", {}, h("dt", {}, name), h("dd", { class: kind }, h("i", { style: { width: `${Math.max(0, 100 * value / most)}%` } })), h("dd", {}, numbers[at]))),
    h("div", { class: "all" }, h("dt", {}, "Score"), h("dd", {}, hit.strength === null ? "" : `${hit.strength.toFixed(1)} × what unrelated questions reach`), h("dd", {}, hit.score.toFixed(2))));
  const unplaced = hit.words > .005 && !total(shown.ranked.words.map((word) => word.by_words));
  if (unplaced) $("ranked").textContent += " The page has no words of its own in the index: it gets what other pages usually have.";
}

// ---- the places

// Show where one word is warm, or where each word is warmest.
export function light(active, move = false) {
  const { heat, page } = shown;
  if (!heat) return;
  [...$("words").children].forEach((button, number) => button.setAttribute("aria-pressed", String(number === active)));
  const warm = [];
  const some = heat.words.some((word) => !word.common);  // words that are not stop words
  heat.words.forEach((word, number) => {
    if (active !== null ? number !== active : word.common && some) return;
    const best = active === null ? word.warm.filter((one) => one.heat > .5).slice(0, 3) : word.warm;
    for (const one of best) warm.push({ ...one, colour: colour(number) });
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
  const word = active === null ? null : heat.words[active];
  $("why-note").textContent = word ? told(word, active) : heat.kind === "none" ? heat.reason : page.note ?? "Each word is marked where it matches best. Point at a word, or focus it, to see its matches alone.";
  $("found").style.setProperty("--word", word ? colour(active) : "");
  $("found").replaceChildren(...distinct(word?.warm ?? [], heat.labels).slice(0, 6).map((one) => h("li", {},
    h("b", {}, one.label, one.times > 1 ? h("small", {}, ` × ${one.times}`) : null),
    h("span", { class: "meter" }, h("i", { style: { width: `${Math.max(0, 100 * one.similarity)}%` } })),
    h("small", { title: "cosine" }, one.similarity.toFixed(2)))));
}

function told(word, active) {
  if (chosen() === "document") return `“${word.text}” adds ${word.score.toFixed(2)} to the MaxSim of all vectors.`;
  const { words, meaning, hit } = parts();
  if (!hit || hit.words === null) return `“${word.text}” adds ${meaning[active].toFixed(2)} by meaning.`;
  return `“${word.text}” adds ${words[active].toFixed(2)} by words and ${meaning[active].toFixed(2)} by meaning.`;
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

for (const choice of document.querySelectorAll("input[name=vectors]")) choice.addEventListener("change", explain);
