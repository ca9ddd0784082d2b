// The connection to the placer. What always holds: while it is lost, the page keeps what it knows and says so; it
// connects again by itself, also after the placer was away for days or refused this page.

// The placer writes every 10 s at least. A connection that brings nothing for three times that is dead.
const SILENT_MS = 30000;
// The pause before a new connection: doubled up to the longest, and spread, so that many pages do not come at once.
const FIRST_PAUSE_MS = 1000, LONGEST_PAUSE_MS = 15000;

const KINDS = ["status", "nodes", "gone", "synced", "waiting", "news"];

/** Read the stream for ever. `on` has a function for each kind of message, and `link(state)` for the connection. */
export function connect(on) {
  let source = null, heardMs = 0, pauseMs = FIRST_PAUSE_MS, timer = 0;

  function open() {
    source = new EventSource("/v1/live");
    heardMs = performance.now();
    on.opened();
    for (const kind of KINDS) {
      source.addEventListener(kind, (message) => {
        heardMs = performance.now();
        pauseMs = FIRST_PAUSE_MS;
        on.link("live");
        on[kind](JSON.parse(message.data));
      });
    }
    source.onerror = again;
  }

  function again() {
    source.close();
    clearTimeout(timer);
    on.link("lost");
    timer = setTimeout(open, pauseMs * (0.5 + Math.random() / 2));
    pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
  }

  setInterval(() => {
    if (source.readyState !== EventSource.CLOSED && performance.now() - heardMs > SILENT_MS) again();
  }, 1000);
  // A laptop that wakes, or a network that comes back, need not wait for the pause.
  window.addEventListener("online", () => { if (source.readyState === EventSource.CLOSED) { clearTimeout(timer); open(); } });
  open();
}
