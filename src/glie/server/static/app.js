// The page of `glie serve`: which view the address asks for, keys, and what the index holds.

import { showBudget } from "./budget.js";
import { listDocuments } from "./documents.js";
import { $, count, size, wrong } from "./elements.js";
import { showGeometry } from "./geometry.js";
import { showSearch } from "./results.js";
import { api } from "./server.js";
import { address, go, state } from "./state.js";
import { showPage, viewerKey } from "./viewer.js";

const INSIGHTS = ["budget", "geometry"];

addEventListener("route", route);
function route() {
  if (state.info === null) return;  // the index is not known yet; this runs again when it is
  const at = address();
  const asked = at.get("view") === "insights" ? "budget" : at.get("view");
  const view = INSIGHTS.includes(asked) ? asked : "search";
  for (const name of ["search", ...INSIGHTS]) $(name).hidden = name !== view;
  $("insights").hidden = view === "search";
  for (const link of document.querySelectorAll("nav a")) {
    const mine = link.dataset.view === view || (link.dataset.view === "insights" && view !== "search");
    if (mine) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = { search: at.get("q"), budget: "Budget", geometry: "Geometry" }[view];
  document.title = [title, state.info.name, "glie"].filter(Boolean).join(" · ");
  if (view === "search") showSearch(at);
  if (view === "budget") showBudget();
  if (view === "geometry") showGeometry(at.get("page"));
  if (view === "search" && at.get("page")) showPage(at.get("page"), at.get("q") ?? "");
  else if ($("viewer").open) $("viewer").close();
}

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=radio], [type=checkbox]), select, textarea");
  if ($("viewer").open) {
    if (event.target.matches("input[type=radio]") || !viewerKey(event.key)) return;
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

addEventListener("stale", async (event) => { await refresh(); event.detail(); });
async function refresh() {
  [state.info, { documents: state.documents }] = await Promise.all([api("/info"), api("/documents")]);
  const { info } = state;
  $("name").textContent = info.name.replace(/\.glie$/, "");
  const each = info.bytes_per_page === null ? "" : `, ${Math.round(info.bytes_per_page).toLocaleString("en")} bytes a page`;
  $("holds").textContent = info.pages ? `${count(info.pages, "page")} in ${count(info.documents, "document")}${each}` : info.read_only ? "The index is empty." : "The index is empty. Add documents to begin.";
  $("weight").textContent = info.compression === null ? `glie ${info.version}` : `glie ${info.version} · ${size(info.bytes)} for ${count(info.pages, "page")}, ${info.compression.toFixed(0)} times smaller than their vectors · ${info.encoder ?? "no encoder named"}`;
  $("by").hidden = !info.pages_with_text || info.encoder_state === "none";
  if (info.encoder_state === "none" && !info.pages_with_text) {
    $("query").disabled = true;
    $("query").placeholder = "This index names no encoder: search it with vectors, POST /search";
  }
  if ($("shelves").open) listDocuments();
  document.body.classList.remove("starting");
  route();
}

refresh().then(() => { if (!address().size && matchMedia("(pointer: fine)").matches) $("query").focus(); })
  .catch((error) => { document.body.classList.remove("starting"); $("said").replaceChildren(wrong(error)); });
