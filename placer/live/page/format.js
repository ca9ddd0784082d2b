// Numbers and times for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with three digits and a binary unit: `1.18 GiB`. */
export function bytes(count) {
  let value = count, unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  const digits = Math.abs(value) >= 100 || unit === 0 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
  return `${digits} ${UNITS[unit]}`;
}

export const percent = (value) => `${Math.round(value)} %`;

/** The time of day of an RFC 3339 time, where this browser is. */
export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString([], { hour12: false });
}

/** How long ago a time was, in one unit: `4 min`. */
export function ago(time, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - new Date(time).getTime()) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

/** A pod's name; its uid where no name is known. */
export const podName = (pod) => (pod.name ? `${pod.namespace}/${pod.name}` : `pod ${pod.pod ?? "unknown"}`);
