// Asking the server, and the token that it may want.

import { $ } from "./elements.js";

export async function api(path, options = {}) {
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
export const post = (path, body, options = {}) =>
  api(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...options });
export const pagePath = (id, rest = "") => `/pages/${encodeURIComponent(id)}${rest}`;

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
