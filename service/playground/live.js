// Live: the running batch, as the server tells it twice a second. Numbers and slots only; the feed carries no text.

import { byId, el, showProblem } from "./dom.js";
import { drawLine } from "./heatmap.js";

const INTERVAL_MS = 250;
const HISTORY = 120;
let feed = null;
const tiles = {}; // name -> {value, canvas}
const engines = new Map(); // pair -> {slots, meter, said}
let speeds = [];

export function start() {
  for (const node of document.querySelectorAll("[data-tile]")) {
    tiles[node.dataset.tile] = { value: node.querySelector("b"), canvas: node.querySelector("canvas") };
  }
}

export function enter() {
  if (feed) return;
  feed = new EventSource(`v1/live?interval_ms=${INTERVAL_MS}`);
  feed.addEventListener("live", (event) => {
    showProblem(byId("live-problem"), null);
    update(JSON.parse(event.data));
  });
  feed.addEventListener("error", () => {
    showProblem(byId("live-problem"), { title: "The feed stopped", detail: "Trying to reach the server again…" });
    // A browser gives up for good after a refusal; a refusal here is "too many watchers", which passes.
    if (feed?.readyState === EventSource.CLOSED) setTimeout(() => { if (feed?.readyState === EventSource.CLOSED) { leave(); if (location.hash.startsWith("#/live")) enter(); } }, 3000);
  });
}

export function leave() {
  feed?.close();
  feed = null;
}

function update(state) {
  const sum = (name) => state.engines.reduce((total, engine) => total + engine[name], 0);
  const rows = sum("active_rows");
  const capacity = sum("row_capacity");
  const { cache_hit: hits = 0, cache_shared: shared = 0, cache_miss: misses = 0 } = state.totals;
  const lookups = hits + shared + misses;
  set("speed", Math.round(state.per_second.target_tokens).toLocaleString("en"));
  set("rows", `${rows} / ${capacity}`);
  set("occupancy", `${capacity ? Math.round(100 * rows / capacity) : 0} %`);
  set("queue", sum("queued_segments").toLocaleString("en"));
  set("requests", state.per_second.requests.toFixed(1));
  set("cache", lookups ? `${Math.round(100 * (hits + shared) / lookups)} %` : "–");
  speeds = [...speeds, state.per_second.target_tokens].slice(-HISTORY);
  drawLine(tiles.speed.canvas, speeds);
  state.engines.forEach(showEngine);
}

function set(name, text) {
  if (tiles[name].value.textContent !== text) tiles[name].value.textContent = text;
}

function showEngine(engine) {
  if (!engines.has(engine.pair)) engines.set(engine.pair, build(engine));
  const { slots, meter, said } = engines.get(engine.pair);
  const perLoop = engine.row_capacity / engine.loops.length;
  engine.loops.forEach((rows, loop) => {
    for (let place = 0; place < perLoop; place++) fill(slots[loop * perLoop + place], rows[place]);
  });
  meter.style.setProperty("--p", engine.row_capacity ? engine.active_rows / engine.row_capacity : 0);
  said.textContent = `${engine.active_rows} of ${engine.row_capacity} rows in ${engine.loops.length} loop${engine.loops.length === 1 ? "" : "s"}, ` +
    `${engine.queued_segments} segments (${engine.queued_tokens} tokens) waiting, ${engine.num_steps.toLocaleString("en")} steps so far`;
}

function build(engine) {
  const slots = Array.from({ length: engine.row_capacity }, () => {
    const label = el("span");
    return Object.assign(el("div", { class: "slot" }, el("i"), label), { label });
  });
  const meter = el("div", { class: "meterline" });
  const said = el("p", { class: "fine" });
  byId("live-engines").append(el("div", { class: "card", "data-pair": engine.pair }, el("h2", {}, engine.pair), said, meter, el("div", { class: "slots", "aria-hidden": "true" }, slots)));
  return { slots, meter, said };
}

/** A job keeps its colour as its rows move; a row's length shows how far it is. */
function fill(slot, row) {
  slot.classList.toggle("busy", Boolean(row));
  const text = row ? `${row.length}${row.beam_size > 1 ? ` ·${row.beam + 1}` : ""}` : "";
  if (slot.label.textContent !== text) slot.label.textContent = text;
  slot.style.setProperty("--done", row ? Math.min(1, row.length / Math.max(1, Math.min(row.max_length, 60))).toFixed(3) : 0);
  if (row) slot.style.setProperty("--hue", (row.job * 47) % 360);
}
