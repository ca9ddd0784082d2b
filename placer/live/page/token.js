// The reader's token. What always holds: it is sent to the placer in a header alone, never in a URL, and is kept for
// this tab alone.

import { byId, setText } from "./dom.js";

const KEPT = "plimsoll.token";
const FORM = /^[A-Za-z0-9._~+/-]+=*$/;
let token = kept();

function kept() {
  try { return sessionStorage.getItem(KEPT) ?? ""; } catch { return ""; }
}

function keep(value) {
  token = value;
  // A browser may forbid it; the token then lasts until the page is loaded again.
  try { value ? sessionStorage.setItem(KEPT, value) : sessionStorage.removeItem(KEPT); } catch { /* as said */ }
}

export const hasToken = () => token !== "";

/** The headers of each request. */
export const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** Show the form with a reason. */
export function askForToken(reason) {
  const form = byId("login"), wasHidden = form.hidden;
  form.hidden = false;
  setText(byId("login-text"), reason);
  byId("forget").hidden = !hasToken();
  if (wasHidden) byId("token").focus();
}

/** The placer answers: no form is needed. */
export function accepted() {
  byId("login").hidden = true;
  byId("forget").hidden = !hasToken();
}

/** Wire the form; `changed` is called with each new token. */
export function onToken(changed) {
  byId("login").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("token").value.trim();
    if (!FORM.test(given)) return setText(byId("login-text"), "That is no token: it has letters, digits and . _ ~ + / - = alone.");
    byId("token").value = "";
    keep(given);
    setText(byId("login-text"), "asking the placer …");
    changed();
  });
  byId("forget").addEventListener("click", () => {
    keep("");
    location.reload(); // nothing that was read with it stays on the screen
  });
}
