// Wires the page: the stream's messages to the drawings, and the keys to the controls.

import { byId, setText } from "./dom.js";
import { clock } from "./format.js";
import { showGpu, showKeys, showPod } from "./dialogs.js";
import { Fleet, MANY_GPUS } from "./nodes.js";
import { drawAges, drawFigures, drawNews, drawWaiting } from "./panels.js";
import { connect } from "./stream.js";
import { accepted, askForToken, onToken } from "./token.js";

const THEMES = ["auto", "light", "dark"];
const seenNews = new Set();
let arrived = new Set(); // the nodes of this connection
let figures = 0, heard = null, chosenDensity = stored("density");

const fleet = new Fleet(byId("fleet"), (name, uuid) => {
  const node = fleet.nodes.get(name), gpu = fleet.gpu(name, uuid);
  if (gpu) showGpu(node, gpu, showPod);
}, () => {
  // Not more than some times a second: the sums read every GPU.
  figures ||= setTimeout(() => { figures = 0; drawFigures(fleet.nodes); }, 250);
});

const again = connect({
  opened() { arrived = new Set(); },
  link(state) {
    if (state === "live") { heard = new Date(); accepted(); }
    byId("link").dataset.state = state;
    const refused = state === "refused" ? "a token is needed" : heard ? "connection lost" : "no placer answers";
    setText(byId("link"), state === "live" ? "live" : heard ? `${refused}; as of ${clock(heard)}` : refused);
    document.body.classList.toggle("stale", state !== "live");
  },
  refused: askForToken,
  status(status) {
    const parts = [...status.missing];
    if (!status.leads) parts.push("this placer follows: another one places");
    byId("banner").hidden = parts.length === 0;
    setText(byId("banner"), parts.join("; "));
    document.title = parts.length ? "Plimsoll ⚠" : "Plimsoll";
  },
  nodes(nodes) {
    for (const node of nodes) { arrived.add(node.node); fleet.put(node); }
  },
  gone(names) { for (const name of names) { arrived.delete(name); fleet.remove(name); } },
  synced() {
    for (const name of [...fleet.nodes.keys()]) if (!arrived.has(name)) fleet.remove(name);
    const gpus = [...fleet.nodes.values()].reduce((sum, node) => sum + node.gpus.length, 0);
    if (chosenDensity === null) setDense(gpus > MANY_GPUS);
    document.body.dataset.synced = "true";
    fleet.drawn();
  },
  waiting(waiting) { drawWaiting(waiting, showPod); },
  news(news) { drawNews(news, seenNews, showPod); },
});
onToken(again);
setInterval(drawAges, 10000);

function stored(name) {
  try { return localStorage.getItem(`plimsoll.${name}`); } catch { return null; }
}

function store(name, value) {
  try { localStorage.setItem(`plimsoll.${name}`, value); } catch { /* a browser may forbid it; the choice then ends with the page */ }
}

function setDense(dense) {
  byId("fleet").classList.toggle("dense", dense);
  byId("density").setAttribute("aria-pressed", String(dense));
}

function toggleDense() {
  const dense = !byId("fleet").classList.contains("dense");
  chosenDensity = dense ? "dense" : "roomy";
  store("density", chosenDensity);
  setDense(dense);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(byId("theme"), `Theme: ${theme}`);
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  store("theme", theme);
  setTheme(theme);
}

setTheme(THEMES.includes(stored("theme")) ? stored("theme") : "auto");
if (chosenDensity !== null) setDense(chosenDensity === "dense");
byId("density").addEventListener("click", toggleDense);
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", showKeys);
byId("dialog-close").addEventListener("click", () => byId("dialog").close());
byId("filter").addEventListener("input", (event) => fleet.filter(event.target.value));
byId("filter").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.target.value = "";
  fleet.filter("");
  fleet.moveTo(fleet.current);
});
byId("fleet").addEventListener("keydown", (event) => {
  if (!["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  fleet.step(event.key);
});

const KEYS = {
  "/": () => byId("filter").focus(),
  g: () => fleet.moveTo(fleet.current),
  w: () => (byId("waiting").querySelector("button") ?? byId("waiting")).focus(),
  e: () => byId("news").focus(),
  d: toggleDense,
  t: nextTheme,
  "?": showKeys,
};
document.addEventListener("keydown", (event) => {
  const writes = event.target.closest?.("input, textarea");
  if (writes || event.ctrlKey || event.metaKey || event.altKey || byId("dialog").open || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
