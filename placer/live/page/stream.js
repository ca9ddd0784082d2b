// The connection to the placer. What always holds: while it is lost, the page keeps what it knows and says so; it
// connects again by itself, also after the placer was away for days or refused this page. The stream is read by
// fetch, as EventSource can send no token.

import { hasToken, headers } from "./token.js";

// The placer writes every 10 s at least. A connection that brings nothing for three times that is dead.
const SILENT_MS = 30000;
// The pause before a new connection: doubled up to the longest, and spread, so that many pages do not come at once.
const FIRST_PAUSE_MS = 1000, LONGEST_PAUSE_MS = 15000;

class RefusedError extends Error {}

/**
 * Read the stream for ever. `on` has a function for each kind of message, `link(state)` for the connection, and
 * `refused(reason)` for a placer that asks for another token. Returns a function that connects again at once.
 */
export function connect(on) {
  let aborting = new AbortController(), heardMs = 0, pauseMs = FIRST_PAUSE_MS, wake = () => {};

  async function read() {
    aborting = new AbortController();
    heardMs = performance.now();
    on.opened();
    const response = await fetch("/v1/live", { headers: headers(), signal: aborting.signal, cache: "no-store" });
    if (response.status === 401 || response.status === 403) throw new RefusedError((await response.json()).message);
    if (!response.ok || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) throw new Error(response.statusText);
    for await (const [kind, data] of messages(response.body, () => { heardMs = performance.now(); })) {
      pauseMs = FIRST_PAUSE_MS;
      on.link("live");
      try { on[kind]?.(JSON.parse(data)); } catch (error) { reportError(error); } // a message that cannot be drawn costs no other
    }
  }

  async function follow() {
    for (;;) {
      let isRefused = false;
      try {
        await read();
        on.link("lost");
      } catch (error) {
        aborting.abort();
        isRefused = error instanceof RefusedError;
        on.link(isRefused ? "refused" : "lost");
        if (isRefused) on.refused(error.message);
      }
      // Without a token nothing changes until there is one; a refused one may be accepted later.
      if (isRefused) await pause(hasToken() ? LONGEST_PAUSE_MS : Infinity);
      else await pause(pauseMs * (0.5 + Math.random() / 2));
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  function pause(ms) {
    return new Promise((resolve) => {
      const timer = ms === Infinity ? 0 : setTimeout(resolve, ms);
      wake = () => { clearTimeout(timer); resolve(); };
    });
  }

  setInterval(() => { if (performance.now() - heardMs > SILENT_MS) aborting.abort(); }, 1000);
  // A laptop that wakes, or a network that comes back, need not wait for the pause.
  window.addEventListener("online", () => wake());
  follow();
  return () => { pauseMs = FIRST_PAUSE_MS; aborting.abort(); wake(); };
}

/** The messages of a stream of server-sent events: pairs of kind and data, which is one line. */
async function* messages(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", kind = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    if (!value.includes("\n")) continue;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) yield [kind, line.slice(6)];
    }
  }
}
