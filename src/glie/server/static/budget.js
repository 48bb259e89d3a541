// What fewer bytes would keep of this corpus.

import { $, count, h, percent, size, svg, wait, wrong } from "./elements.js";
import { measuring, plot, survey } from "./plots.js";
import { post } from "./server.js";
import { state } from "./state.js";

export function showBudget() {
  const body = $("budget-body");
  if (!state.info.pages) return body.replaceChildren(h("p", { class: "muted" }, "The index is empty."));
  if (!body.childNodes.length) body.replaceChildren(wait("Looking for measurements…"));
  survey((found) => {
    if (found.state !== "done") body.replaceChildren(measuring(found, showBudget));
    else drawBudget(body, found);
  }).catch((error) => body.replaceChildren(wrong(error)));
}

function drawBudget(body, found) {
  const now = { ...found.current, bytes_per_page: state.info.bytes_per_page, now: true };
  const whole = found.budgets.at(-1);
  const others = found.budgets.filter((row) => row === whole || (row.budget !== state.info.budget && row.bytes_per_page < whole.bytes_per_page));
  const rows = [...others, now].sort((a, b) => a.bytes_per_page - b.bytes_per_page);
  let chosen = rows.indexOf(now);
  let pages = state.info.pages;
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
