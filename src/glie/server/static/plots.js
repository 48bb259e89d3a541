// Plots that fit their box, tips in them, and the survey that they show.

import { h, time } from "./elements.js";
import { api, post } from "./server.js";

// Draws into a box at its width, and again when that changes.
export function plot(draw, label) {
  const box = h("div", { class: "plot", role: "group", "aria-label": label });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) { width = now; box.querySelector("svg")?.remove(); box.append(draw(now, box)); }
  }).observe(box);
  return box;
}

export function tip(box, x, y, text) {
  box.querySelector(".tip")?.remove();
  if (!text) return;
  const style = getComputedStyle(box);
  box.append(h("div", { class: "tip", style: { left: `${x + parseFloat(style.paddingLeft)}px`, top: `${y + parseFloat(style.paddingTop)}px` } }, text));
}

export function measuring(survey, again) {
  if (survey.state === "running") {
    const left = survey.seconds === null ? "" : `, about ${time(survey.seconds)} left`;
    return h("div", { class: "tile progress" }, h("progress", { max: 1, value: survey.share, "aria-label": "Measuring" }), h("p", { class: "muted", role: "status" }, `Measuring: ${survey.doing}${left}`));
  }
  const why = survey.state === "failed" ? h("p", { class: "wrong", role: "status" }, `It could not be measured: ${survey.doing}`) : null;
  const long = survey.seconds === null ? "a minute or two" : `about ${time(survey.seconds)}`;
  return h("div", { class: "measure" }, why, h("button", { type: "button", onclick: async () => { await post("/survey", {}); again(); } }, "Measure this corpus"),
    h("p", { class: "muted" }, `This takes ${long.replace("about a few", "a few")}: a sample of pages is encoded again. Nothing is stored, and searches go on.`));
}

let polling = null;
export async function survey(draw) {
  clearTimeout(polling);
  const found = await api("/survey");
  draw(found);
  if (found.state === "running") polling = setTimeout(() => survey(draw), 700);
}
