// Elements, numbers and texts: what every part of the page uses.

export const $ = (id) => document.getElementById(id);
const COLOURS = ["#f2a73b", "#2fb3a8", "#e8628a", "#5b8def", "#9b74e0", "#7fae34", "#e8793d", "#3fb2d9", "#c9a227", "#b85c9e"];
export const colour = (number) => COLOURS[number % COLOURS.length];

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
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
export const percent = (share) => `${(100 * share).toFixed(1)}%`;
export function size(bytes) {
  for (const [unit, one] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    if (bytes >= one) return `${(bytes / one).toFixed(bytes / one < 10 ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(bytes)} bytes`;
}
// the server counts characters, the browser UTF-16 units
export const characters = (text) => Array.from(text);

// A text with parts of it marked, as nodes.
export function marked(text, marks) {
  const letters = characters(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of marks) {
    parts.push(letters.slice(at, start).join(""), h("mark", {}, letters.slice(start, end).join("")));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}

// About how long: "a few seconds", "40 seconds", "3 minutes".
export function time(seconds) {
  if (seconds < 5) return "a few seconds";
  if (seconds < 90) return `${Math.ceil(seconds / 5) * 5} seconds`;
  return count(Math.round(seconds / 60), "minute");
}

export const wrong = (error) => h("span", { class: "wrong" }, error.message);
export const wait = (text) => h("span", { class: "wait" }, text);
