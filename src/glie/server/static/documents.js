// The documents of the index: the list, uploads, deletion.

import { $, count, h, wrong } from "./elements.js";
import { api } from "./server.js";
import { state } from "./state.js";

const refresh = () => new Promise((done) => dispatchEvent(new CustomEvent("stale", { detail: done })));

$("manage").addEventListener("click", () => { listDocuments(); $("shelves").showModal(); });
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
$("files").addEventListener("change", () => { upload([...$("files").files]); $("files").value = ""; });

export function listDocuments() {
  if (state.info === null) return;  // the index is not known yet; refresh() lists them then
  $("upload").hidden = state.info.read_only;
  $("listed").replaceChildren(...state.documents.map((document) => h("li", {},
    h("span", {}, document.name), h("small", {}, count(document.pages, "page")),
    state.info.read_only ? null : h("button", { type: "button", class: "quiet", "aria-label": `Delete ${document.name}`, onclick: (event) => remove(document, event.target) }, "Delete"))));
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
    $("uploaded").replaceChildren(wrong(error));
  }
  await refresh();
}

async function upload(files) {
  if (!files.length) return;
  if (!$("shelves").open) $("manage").click();
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
    if (done.unchanged.length) said.push(h("span", {}, `${done.unchanged.join(", ")}: already in the index, byte for byte.`));
    $("uploaded").replaceChildren(...said, ...done.problems.map((line) => h("span", { class: "wrong" }, line)));
  } catch (error) {
    $("uploaded").replaceChildren(wrong(error));
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
  if (state.info?.read_only || !event.dataTransfer?.types.includes("Files")) return;
  document.body.classList.add("dropping");
  if (!document.querySelector("dialog[open]")) $("manage").click();
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  if (!state.info?.read_only) upload([...event.dataTransfer.files]);
});
