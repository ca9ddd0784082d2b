// Draws the waiting pods, the events, and the figures at the top.

import { byId, make, setText } from "./dom.js";
import { ago, bytes, clock, percent, podName } from "./format.js";

// The events on the page; the oldest leave it.
const EVENTS_SHOWN = 200;

const BAD = new Set(["limit.denied", "limit.violated", "limit.unenforced", "pod.foreign", "pool.lost", "node.foreign"]);
const WARN = new Set(["limit.paused", "limit.unmet", "pod.unplaceable", "pod.preempted", "pod.relocated", "gpu.pressure", "gpu.health"]);
const GOOD = new Set(["task.loaded", "pod.placed", "limit.resumed"]);

/** The pods without a node. `explain(namespace, name)` is called for the one that is chosen. */
export function drawWaiting(waiting, explain) {
  byId("waiting-empty").hidden = waiting.total > 0;
  setText(byId("waiting-count"), waiting.total ? String(waiting.total) : "");
  setText(byId("figure-waiting"), String(waiting.total));
  byId("figure-waiting-box").classList.toggle("alarm", waiting.total > 0);
  // With few pods, each says its reason itself.
  const counted = waiting.total > waiting.reasons.length ? waiting.reasons : [];
  byId("reasons").replaceChildren(...counted.map(([reason, pods]) =>
    make("li", {}, make("b", {}, String(pods)), make("span", {}, reason || "not tried yet"))));
  const list = byId("waiting"), focused = document.activeElement?.closest?.("#waiting .row")?.dataset.pod;
  list.replaceChildren(...waiting.pods.map((pod) => waitingRow(pod, explain)));
  if (focused) [...list.children].find((row) => row.dataset.pod === focused)?.querySelector("button").focus();
  const more = waiting.total - waiting.pods.length;
  byId("waiting-more").hidden = more <= 0;
  setText(byId("waiting-more"), `and ${more} more`);
}

function waitingRow(pod, explain) {
  const row = make("li", { class: "row" },
    make("div", { class: "head" },
      make("button", { class: "name", type: "button", onclick: () => explain(pod.namespace, pod.name) }, podName(pod)),
      pod.since ? make("time", { class: "time", datetime: pod.since }, ago(pod.since)) : null),
    pod.asks ? make("div", { class: "text" }, `asks for ${pod.asks}`) : null,
    make("div", { class: "text" }, pod.reason || "not tried yet"));
  row.dataset.pod = pod.pod;
  return row;
}

/** Let the ages of waiting pods grow. */
export function drawAges() {
  for (const time of byId("waiting").querySelectorAll("time")) setText(time, ago(time.dateTime));
}

/** Add events; one that is there already changes nothing. */
export function drawNews(news, seen, explain) {
  const list = byId("news");
  for (const event of news) {
    if (seen.has(event.id)) continue;
    seen.add(event.id);
    list.prepend(newsRow(event, explain));
  }
  while (list.childElementCount > EVENTS_SHOWN) list.lastElementChild.remove();
  // Older ids are those that left the placer's list too.
  while (seen.size > 5 * EVENTS_SHOWN) seen.delete(seen.values().next().value);
  byId("news-empty").hidden = list.childElementCount > 0;
}

function newsRow(event, explain) {
  const tone = BAD.has(event.what) ? "bad" : WARN.has(event.what) ? "warn" : GOOD.has(event.what) ? "good" : "";
  const about = event.name
    ? make("button", { class: "name", type: "button", onclick: () => explain(event.namespace, event.name) }, podName(event))
    : make("span", { class: "name" }, event.node);
  const node = event.name && event.node ? `${event.node}: ` : "";
  return make("li", { class: "row" },
    make("div", { class: "head" },
      make("span", { class: `what ${tone}` }, event.what), about,
      make("time", { class: "time", datetime: event.time }, clock(event.time))),
    event.text ? make("div", { class: "text" }, `${node}${event.text}`) : null);
}

/** The sums over all nodes. */
export function drawFigures(nodes) {
  let gpus = 0, usable = 0, used = 0, promised = 0, share = 0, busy = 0, measured = 0;
  for (const node of nodes.values()) {
    for (const gpu of node.gpus) {
      gpus += 1;
      usable += gpu.usable_bytes;
      used += gpu.used_bytes;
      promised += gpu.promised_bytes;
      share += gpu.promised_share_pct;
      if (!gpu.mig) { busy += 100 - gpu.idle_pct; measured += 1; }
    }
  }
  const part = (count) => (usable ? percent(100 * count / usable) : "–");
  figure("gpus", String(gpus), `on ${nodes.size} node${nodes.size === 1 ? "" : "s"}`);
  figure("used", part(used), `${bytes(used)} of ${bytes(usable)}`);
  figure("promised", part(promised), bytes(promised));
  figure("share", gpus ? percent(share / gpus) : "–", "");
  figure("busy", measured ? percent(busy / measured) : "–", "");
  byId("fleet-empty").hidden = nodes.size > 0;
}

function figure(name, text, note) {
  const element = byId(`figure-${name}`);
  if (element.dataset.text === text + note) return;
  element.dataset.text = text + note;
  element.replaceChildren(text, ...(note ? [" ", make("small", {}, note)] : []));
}
