// What is shown is in the address: view, q, by (how to search), like (a page), doc (several), group, page.

export const state = { info: null, documents: [] };

export const address = () => new URLSearchParams(location.search);

const changed = () => dispatchEvent(new Event("route"));

export function go(changes, { replace = false } = {}) {
  const wanted = address();
  for (const [name, value] of Object.entries(changes)) {
    wanted.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one) wanted.append(name, one);
  }
  const url = wanted.size ? `/?${wanted}` : "/";
  history[replace ? "replaceState" : "pushState"](null, "", url);
  changed();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-link]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  changed();
});
addEventListener("popstate", changed);
