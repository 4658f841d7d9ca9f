// What the views share: languages, the text, the options. The fragment of the address holds what can be shared;
// fragments are never sent to a server, so a shared text is in nobody's log.

const KEYS = { source: "from", target: "to", text: "text", segment: "segment" };
const MAX_FRAGMENT = 8000; // characters; longer texts are not put into the address

export const state = {
  source: "auto",
  target: "en",
  text: "",
  segment: 0,
  options: { beam_size: 1, n_best: 1 },
  key: read("sessionStorage", "dragoman.key") ?? "",
  languages: [], // {code, name, targets}
  pairs: [], // {source, target, pivot}
};

export function nameOf(code) {
  return state.languages.find((language) => language.code === code)?.name ?? code;
}

export function setKey(key) {
  state.key = key;
  try { sessionStorage.setItem("dragoman.key", key); } catch { /* then it lasts as long as the page */ }
}

function read(store, name) {
  try { return globalThis[store].getItem(name); } catch { return null; }
}

/** {view, known values} of the address. */
export function readFragment() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const view = ["translate", "explain", "live", "learn"].includes(path) ? path : "translate";
  const given = new URLSearchParams(query);
  for (const [name, key] of Object.entries(KEYS)) {
    if (!given.has(key)) continue;
    state[name] = name === "segment" ? Math.max(0, Number.parseInt(given.get(key), 10) || 0) : given.get(key);
  }
  return { view, hasText: given.has("text") };
}

export function fragment(view, changes = {}) {
  const values = { source: state.source, target: state.target, text: state.text, ...changes };
  const query = new URLSearchParams();
  for (const [name, key] of Object.entries(KEYS)) {
    if (values[name] !== undefined && values[name] !== "" && values[name] !== null) query.set(key, values[name]);
  }
  const whole = `#/${view}?${query}`;
  return whole.length > MAX_FRAGMENT ? `#/${view}` : whole;
}

export function writeFragment(view, changes) {
  history.replaceState(null, "", fragment(view, changes));
}
