// The vectors of a page in a plane, and the shape of the corpus.

import { $, colour, count, h, percent, svg, wait } from "./elements.js";
import { measuring, plot, survey, tip } from "./plots.js";
import { api, pagePath } from "./server.js";
import { address, go, state } from "./state.js";

let mapped = null;

export function showGeometry(id) {
  if (!state.documents.length) return $("map").replaceChildren(h("p", { class: "muted" }, "The index names no documents."));
  const current = state.documents.find((document) => id?.startsWith(`${document.name}#`)) ?? state.documents[0];
  $("pick-document").replaceChildren(...state.documents.map((document) => h("option", { value: document.name, selected: document === current }, document.name)));
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
$("pick-document").addEventListener("change", (event) => go({ page: state.documents.find((d) => d.name === event.target.value).first }, { replace: true }));
$("pick-page").addEventListener("change", (event) => go({ page: event.target.value }, { replace: true }));

async function showMap(id) {
  mapped = id;
  $("map").setAttribute("aria-busy", "true");
  if (!$("map").childNodes.length) $("map").replaceChildren(wait("Encoding the page…"));
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
