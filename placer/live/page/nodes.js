// Draws nodes and GPUs. What always holds: an element is made once and then changed, so focus and animations last; a
// frame draws some nodes at most, so that the page answers keys while a thousand nodes arrive.

import { make, setStyle, setText } from "./dom.js";
import { bytes, percent, podName } from "./format.js";

// Nodes that are drawn in one frame: some 5 ms with 8 GPUs each.
const EACH_FRAME = 25;
// The part of the bar up to the line; the rest shows what is past it.
const UP_TO_LINE = 0.94;
// From this many GPUs on, the page begins dense.
export const MANY_GPUS = 64;
// Pods that a GPU names below its bar; the dialog has all of them.
const NAMED = 4;

const MARKS = { placed: "○", started: "·", loading: "▲", loaded: "●" };
const byName = new Intl.Collator("en", { numeric: true }).compare; // `node-9` before `node-10`

export class Fleet {
  /** `root` gets the nodes; `open(node, uuid)` is called for a GPU that is chosen. */
  constructor(root, open, drawn) {
    this.nodes = new Map();
    this.root = root;
    this.open = open;
    this.drawn = drawn;
    this.views = new Map();
    this.order = []; // the names of the views, as they stand on the page
    this.dirty = new Set();
    this.text = "";
    this.frame = 0;
    this.current = null;
  }

  put(node) { this.nodes.set(node.node, node); this.touch(node.node); }

  remove(name) { this.nodes.delete(name); this.touch(name); }

  touch(name) {
    this.dirty.add(name);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  filter(text) {
    this.text = text.trim().toLowerCase();
    for (const [name, view] of this.views) view.element.hidden = !this.shows(this.nodes.get(name));
  }

  /** Whether the filter's text is in the node's name, a model, or a pod's name. */
  shows(node) {
    if (!this.text || !node) return !this.text;
    const has = (text) => text.toLowerCase().includes(this.text);
    return has(node.node) || node.gpus.some((gpu) => has(gpu.model) || gpu.pods.some((pod) => has(`${pod.namespace}/${pod.name}`)));
  }

  gpu(name, uuid) { return this.nodes.get(name)?.gpus.find((gpu) => gpu.uuid === uuid); }

  draw() {
    this.frame = 0;
    let left = EACH_FRAME;
    for (const name of this.dirty) {
      if (left-- === 0) break;
      this.dirty.delete(name);
      const node = this.nodes.get(name);
      if (node) this.drawNode(node);
      else this.drop(name);
    }
    if (this.dirty.size) this.frame = requestAnimationFrame(() => this.draw());
    if (!this.current?.isConnected) this.moveTo(this.root.querySelector(".gpu"), false);
    this.drawn();
  }

  drawNode(node) {
    let view = this.views.get(node.node);
    if (!view) {
      view = newNode(node.node);
      this.root.insertBefore(view.element, this.place(node.node));
      this.views.set(node.node, view);
    }
    view.element.hidden = !this.shows(node);
    view.element.classList.toggle("silent", node.silent || node.closed.length > 0);
    const models = [...new Set(node.gpus.map((gpu) => gpu.model))];
    setText(view.model, `${node.gpus.length} × ${models.join(", ")}`);
    const badges = [];
    if (node.silent) badges.push("silent");
    badges.push(...node.closed, ...node.taints.map((taint) => `taint ${taint}`));
    if (node.unenforced_since) badges.push("broker away");
    for (const lost of node.lost) badges.push(`GPU ${lost.index ?? lost.uuid} lost: ${lost.reason}${lost.pods.length ? `, ${lost.pods.length} pod${lost.pods.length > 1 ? "s" : ""}` : ""}`);
    for (const uuid of node.stale_cordons) badges.push(`${uuid} cordoned, but not here`);
    const key = JSON.stringify(badges);
    if (view.badgeKey !== key) {
      view.badgeKey = key;
      view.badges.replaceChildren(...badges.map((text) => make("span", { class: "badge" }, text)));
    }
    const gone = new Set(view.gpus.keys());
    for (const gpu of node.gpus) {
      gone.delete(gpu.uuid);
      let row = view.gpus.get(gpu.uuid);
      if (!row) {
        row = newGpu(() => { this.moveTo(row.element, false); this.open(node.node, gpu.uuid); });
        view.gpus.set(gpu.uuid, row);
        view.list.append(row.element);
      }
      drawGpu(row, node, gpu);
    }
    for (const uuid of gone) { view.gpus.get(uuid).element.remove(); view.gpus.delete(uuid); }
  }

  /** The element before which a new node stands. */
  place(name) {
    let low = 0, high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (byName(this.order[middle], name) < 0) low = middle + 1; else high = middle;
    }
    const next = this.order[low];
    this.order.splice(low, 0, name);
    return next === undefined ? null : this.views.get(next).element;
  }

  drop(name) {
    this.views.get(name)?.element.remove();
    this.views.delete(name);
    this.order = this.order.filter((one) => one !== name);
  }

  /** Make a GPU the one that Tab reaches, and focus it. */
  moveTo(element, focus = true) {
    if (!element) return;
    if (this.current) this.current.tabIndex = -1;
    this.current = element;
    element.tabIndex = 0;
    if (focus) element.focus();
  }

  /** Move by arrow keys: along the order of the page, or to the nearest GPU above or below. */
  step(key) {
    const all = [...this.root.querySelectorAll(".node:not([hidden]) .gpu")];
    const at = all.indexOf(this.current);
    if (at < 0) return this.moveTo(all[0]);
    if (key === "Home") return this.moveTo(all[0]);
    if (key === "End") return this.moveTo(all[all.length - 1]);
    if (key === "ArrowDown") return this.moveTo(all[at + 1]);
    if (key === "ArrowUp") return this.moveTo(all[at - 1]);
    const node = this.current.closest(".node");
    const nodes = [...this.root.querySelectorAll(".node:not([hidden])")];
    const next = nodes[nodes.indexOf(node) + (key === "ArrowRight" ? 1 : -1)];
    return this.moveTo(next?.querySelector(".gpu"));
  }
}

function newNode(name) {
  const view = { gpus: new Map(), badgeKey: "[]", model: make("span", { class: "model" }), badges: make("span"), list: make("div") };
  view.element = make("article", { class: "node" },
    make("div", { class: "node-head" }, make("h3", {}, name), view.model, view.badges), view.list);
  view.element.dataset.node = name;
  return view;
}

function newGpu(choose) {
  const row = { pods: new Map() };
  row.index = make("span", { class: "index" });
  row.lane = make("span", { class: "lane" });
  row.mark = make("span", { class: "mark" });
  row.usable = make("span", { class: "usable" });
  row.share = make("i", { class: "share" });
  row.busy = make("i", { class: "busy" });
  row.words = make("span", { class: "words" });
  row.names = make("span", { class: "names" });
  row.element = make("button", { class: "gpu", type: "button", tabindex: "-1", onclick: choose },
    row.index,
    make("span", { class: "bar", "aria-hidden": "true" }, row.lane, row.usable, row.mark),
    make("span", { class: "time", "aria-hidden": "true" }, row.share, row.busy),
    row.words, row.names);
  return row;
}

function drawGpu(row, node, gpu) {
  row.element.dataset.gpu = gpu.uuid;
  row.element.classList.toggle("closed", gpu.closed || gpu.health === "fatal");
  setText(row.index, `#${gpu.index}`);
  const taken = gpu.pods.reduce((sum, pod) => sum + Math.max(pod.expected_bytes, pod.used_bytes), gpu.other_bytes);
  const full = Math.max(gpu.line_bytes / UP_TO_LINE, taken);
  const wide = (count) => `${(100 * count / full).toFixed(2)}%`;
  setStyle(row.mark, "left", wide(gpu.line_bytes));
  setStyle(row.usable, "left", wide(gpu.usable_bytes));
  row.usable.hidden = gpu.usable_bytes === gpu.line_bytes;
  drawPods(row, gpu, wide);
  setStyle(row.share, "width", `${gpu.promised_share_pct}%`);
  setStyle(row.busy, "width", gpu.mig ? "0%" : `${100 - gpu.idle_pct}%`);
  drawWords(row, node, gpu);
  drawNames(row, gpu);
}

function drawPods(row, gpu, wide) {
  const gone = new Set(row.pods.keys());
  const parts = gpu.pods.map((pod) => ({ key: pod.pod, pod }));
  if (gpu.other_bytes > 0) parts.push({ key: "", pod: null });
  for (const [at, { key, pod }] of parts.entries()) {
    gone.delete(key);
    let part = row.pods.get(key);
    if (!part) {
      part = { fill: make("i", { class: "fill" }) };
      part.element = make("span", { class: pod ? "pod" : "pod other" }, pod ? part.fill : null);
      row.pods.set(key, part);
    }
    place(row.lane, part.element, at);
    const all = pod ? Math.max(pod.expected_bytes, pod.used_bytes) : gpu.other_bytes;
    setStyle(part.element, "width", wide(all));
    part.element.title = pod
      ? `${podName(pod)}: ${bytes(pod.used_bytes)} of ${bytes(pod.expected_bytes)}, ${stateOf(pod)}`
      : `${bytes(gpu.other_bytes)} of no pod`;
    if (!pod) continue;
    setStyle(part.fill, "width", all ? `${(100 * pod.used_bytes / all).toFixed(1)}%` : "0%");
    part.fill.className = `fill ${stateOf(pod)}`;
    part.element.classList.toggle("over", pod.declared && pod.used_bytes > pod.expected_bytes);
  }
  for (const key of gone) { row.pods.get(key).element.remove(); row.pods.delete(key); }
}

/** Put an element in its place, unless it stands there: to move it would end its animation. */
function place(parent, element, at) {
  if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] ?? null);
}

/** The state of a pod's processes on a GPU; the one that is behind counts. */
export function stateOf(pod) {
  return ["started", "loading", "loaded"].find((phase) => pod.phases[phase]) ?? "placed";
}

function drawWords(row, node, gpu) {
  const pods = gpu.pods.length + gpu.more_pods;
  const parts = [
    ["", [make("b", {}, bytes(gpu.used_bytes)), ` of ${bytes(gpu.usable_bytes)}`]],
    ["", [make("b", {}, bytes(gpu.promised_bytes)), " promised"]],
    ["", [make("b", {}, percent(gpu.promised_share_pct)), " time"]],
  ];
  if (!gpu.mig) parts.push(["", [make("b", {}, percent(100 - gpu.idle_pct)), " busy"]]);
  if (gpu.reason) parts.push(["bad", [`⚠ ${gpu.health}: ${gpu.reason}`]]);
  if (gpu.cordoned) parts.push(["", ["cordoned"]]);
  else if (gpu.closed && !gpu.reason) parts.push(["", ["outside of the pool"]]);
  if (gpu.labels.length) parts.push(["", [gpu.labels.join(" ")]]);
  const text = parts.map(([, children]) => children.map((child) => child.textContent ?? child).join("")).join(", ");
  if (row.text === `${text} ${pods}`) return;
  row.text = `${text} ${pods}`;
  row.words.replaceChildren(...parts.map(([name, children]) => make("span", { class: name }, ...children)));
  row.element.setAttribute("aria-label", `GPU ${gpu.index} of ${node.node}: ${text}; ${pods} pod${pods === 1 ? "" : "s"}`);
}

function drawNames(row, gpu) {
  const names = gpu.pods.slice(0, NAMED).map((pod) => `${MARKS[stateOf(pod)]} ${pod.name || "unknown"}`);
  const more = gpu.pods.length + gpu.more_pods - names.length;
  setText(row.names, names.join("   ") + (more > 0 ? `   +${more}` : ""));
}
