// The dialog: a GPU with its pods, the explanation of a pod, and the keys.

import { byId, make } from "./dom.js";
import { bytes, clock, percent, podName } from "./format.js";
import { stateOf } from "./nodes.js";
import { headers } from "./token.js";

const STATES = { placed: "no process yet", started: "started", loading: "loading", loaded: "loaded" };
const KEYS = [
  ["/", "filter nodes, models and pods"], ["g", "go to the GPUs"], ["arrows", "from GPU to GPU, and from node to node"],
  ["Enter", "open the GPU, or explain the pod"], ["w", "go to the waiting pods"], ["e", "go to the events"],
  ["d", "dense or roomy"], ["t", "light, dark, or as the system"], ["Esc", "close, or clear the filter"], ["?", "these keys"],
];

let shown = 0; // the number of the dialog's content: an answer that comes late belongs to an older one

function show(title, ...children) {
  shown += 1;
  byId("dialog-title").textContent = title;
  byId("dialog-body").replaceChildren(...children);
  const dialog = byId("dialog");
  if (!dialog.open) dialog.showModal();
  return shown;
}

export function showKeys() {
  show("Keys", table(["key", ""], KEYS.map(([key, text]) => [make("kbd", {}, key), text])));
}

/** A GPU with its pods. `explain(namespace, name)` is called for the pod that is chosen. */
export function showGpu(node, gpu, explain) {
  const rows = gpu.pods.map((pod) => [
    pod.name ? make("button", { class: "name", type: "button", onclick: () => explain(pod.namespace, pod.name) }, podName(pod)) : podName(pod),
    STATES[stateOf(pod)],
    bytes(pod.used_bytes),
    `${bytes(pod.expected_bytes)}${pod.declared ? "" : " expected"}`,
    pod.whole ? "whole" : `${percent(pod.share_pct)} – ${percent(pod.limit_pct)}`,
  ]);
  const doubts = gpu.pods.filter((pod) => pod.doubt).map((pod) => make("p", {}, `${podName(pod)}: ${pod.doubt}`));
  show(`GPU ${gpu.index} of ${node.node}`,
    make("p", { class: "lead" }, `${gpu.model}: ${bytes(gpu.used_bytes)} of ${bytes(gpu.usable_bytes)} used, ${bytes(gpu.promised_bytes)} promised; the line is at ${bytes(gpu.line_bytes)}.`),
    make("p", {}, `${percent(gpu.promised_share_pct)} of its time promised` + (gpu.mig ? "" : `, ${percent(100 - gpu.idle_pct)} busy`) + `. Reported at ${clock(node.time)}.`),
    gpu.reason ? make("p", {}, make("span", { class: "badge" }, `${gpu.health}: ${gpu.reason}`)) : "",
    gpu.cordoned ? make("p", {}, make("span", { class: "badge" }, "cordoned: it takes no new pods")) : "",
    gpu.labels.length ? make("p", {}, `Labels: ${gpu.labels.join(", ")}.`) : "",
    gpu.other_bytes ? make("p", {}, `${bytes(gpu.other_bytes)} belong to no pod.`) : "",
    make("p", { class: "empty" }, gpu.uuid),
    make("h3", {}, "Pods, the largest promise first"),
    rows.length ? table(["pod", "state", ".used", ".promised", ".time: share – limit"], rows) : make("p", { class: "empty" }, "None."),
    gpu.more_pods ? make("p", { class: "empty" }, `and ${gpu.more_pods} more`) : "",
    ...doubts);
}

/** Ask the placer why a pod waits, or what may slow it. */
export async function showPod(namespace, name) {
  const title = `${namespace}/${name}`;
  const mine = show(title, make("p", { class: "empty" }, "asking the placer …"));
  let children;
  try {
    const response = await fetch(`/v1/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/explain`, { headers: headers() });
    const body = await response.json();
    children = response.ok ? explained(body) : [make("p", { class: "lead" }, body.message)];
  } catch {
    children = [make("p", { class: "lead" }, "The placer does not answer; try again in some seconds.")];
  }
  if (mine === shown && byId("dialog").open) byId("dialog-body").replaceChildren(...children);
}

function explained(pod) {
  const parts = [make("p", { class: "lead" }, pod.text)];
  if (pod.expected) parts.push(make("p", {}, pod.expected.text));
  if (pod.waiting) parts.push(...whyItWaits(pod.waiting));
  if (pod.running) parts.push(...howItRuns(pod.running));
  if (!pod.leads) parts.push(make("p", { class: "empty" }, "This placer follows; the one that leads knows its attempts."));
  return parts;
}

function whyItWaits(waiting) {
  const parts = [];
  if (waiting.reasons.length) parts.push(make("h3", {}, `Why it fits none of ${waiting.nodes} nodes`), table(["reason", ".nodes"], waiting.reasons.map((one) => [one.reason, String(one.nodes)])));
  if (waiting.nearest.length) parts.push(make("h3", {}, "What would have to be freed"), table(["node", ""], waiting.nearest.map((one) => [one.node, one.text])));
  if (waiting.preemption) parts.push(make("h3", {}, "Preemption"), make("p", {}, waiting.preemption.text));
  if (waiting.queue?.wakes_on?.length) parts.push(make("h3", {}, "It is tried again when"), make("p", {}, waiting.queue.wakes_on.join("; ")));
  if (waiting.candidates.length) parts.push(make("h3", {}, "Nodes with a place now"), table(["node", ".score"], waiting.candidates.map((one) => [one.node, one.score.toFixed(3)])));
  return parts;
}

function howItRuns(running) {
  const grants = running.grants.map((one) => [
    one.container, one.gpu, one.used_bytes === null ? "–" : bytes(one.used_bytes), bytes(one.line_bytes),
    one.whole ? "whole" : `${percent(one.share_pct)} – ${percent(one.limit_pct)}`,
  ]);
  const checks = running.checks.map((one) => [one.by, one.finding, one.text]);
  return [
    make("h3", {}, "What it was given"), table(["container", "GPU", ".used", ".line", ".time: share – limit"], grants),
    ...(checks.length ? [make("h3", {}, "What may slow it"), table(["by", "", ""], checks)] : []),
    ...(running.doubt ? [make("p", {}, running.doubt)] : []),
  ];
}

/** A table; the name of a column of numbers begins with a dot. */
function table(columns, rows) {
  const name = (column) => (column.startsWith(".") ? "number" : "");
  return make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map((column) => make("th", { class: name(column), scope: "col" }, column.replace(".", "") || make("span", { class: "hidden" }, "text"))))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, at) => make("td", { class: name(columns[at]) }, cell))))));
}
