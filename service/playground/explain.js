// Explain: tokens of both sides, what each looked at, how sure the model was, and the beam as a tree.

import { postJson } from "./api.js";
import { byId, el, percent, show, showProblem, tokenText } from "./dom.js";
import { drawLarge, drawSmall } from "./heatmap.js";
import { directionOf } from "./languages.js";
import { fragment, nameOf, state } from "./state.js";
import { beamTree } from "./tree.js";

const EXAMPLES = [
  ["en", "My friends like tomatoes because they are tasty."],
  ["en", "The bank of the river was quiet."],
  ["pt", "O gato preto dorme no jardim."],
  ["pt", "Os meus amigos gostam de tomates porque são saborosos."],
];
const KINDS = {
  cross: { title: "Target → source", hint: "What each target token looked at in the source while it was chosen." },
  encoder: { title: "Source → source", hint: "What each source token looks at in its own sentence, layer by layer." },
  decoder: { title: "Target → target", hint: "What each target token looks at in what was already written." },
};

let asked = ""; // the request that is shown
let running = null;
let answer = null;
let look = { kind: "cross", layer: null, head: null, row: null }; // null: the mean of all

export function start() {
  byId("explain-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const [source, target] = byId("explain-pair").value.split(" ");
    Object.assign(state, { source, target, text: byId("explain-text").value, segment: 0 });
    const address = fragment("explain", { segment: 0 });
    if (location.hash === address) explain();
    else location.hash = address;
  });
  addEventListener("themechange", () => answer && render());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => answer && render());
}

export function enter() {
  fillPairs(byId("explain-pair"));
  const served = new Set(state.pairs.filter((pair) => !pair.pivot).map((pair) => pair.source));
  show(byId("explain-examples"), "Try ", EXAMPLES.filter(([source]) => served.has(source)).map(([source, text]) =>
    el("button", { type: "button", lang: source, onclick: () => example(source, text) }, text)));
  byId("explain-text").value = state.text;
  byId("explain-text").dir = directionOf(state.source);
  if (state.text.trim()) explain();
  else {
    answer = null;
    show(byId("explain-body"), el("p", { class: "lead" }, "Give a sentence, or click a translation on the Translate page."));
  }
}

export function leave() {
  running?.abort();
}

export function fillPairs(select) {
  const direct = state.pairs.filter((pair) => !pair.pivot);
  show(select, direct.map((pair) => el("option", { value: `${pair.source} ${pair.target}` }, `${nameOf(pair.source)} → ${nameOf(pair.target)}`)));
  const wanted = direct.find((pair) => pair.target === state.target && (state.source === "auto" || pair.source === state.source));
  if (wanted) select.value = `${wanted.source} ${wanted.target}`;
}

function example(source, text) {
  const pair = state.pairs.find((each) => each.source === source && !each.pivot);
  Object.assign(state, { source, target: pair.target, text, segment: 0 });
  location.hash = fragment("explain", { segment: 0 });
}

async function explain() {
  const body = { text: state.text, source: state.source, target: state.target, segment: state.segment, beam_size: Number(byId("explain-beam").value), runners_up: 5, self_attention: true };
  const key = JSON.stringify(body);
  if (key === asked && answer) return;
  running?.abort();
  const mine = new AbortController();
  running = mine;
  showProblem(byId("explain-problem"), null);
  byId("explain-body").setAttribute("aria-busy", "true");
  try {
    const found = await postJson("v1/explain", body, mine.signal);
    if (running !== mine) return;
    asked = key;
    answer = found;
    look = { kind: "cross", layer: null, head: null, row: null };
    render();
  } catch (problem) {
    if (running !== mine || problem.name === "AbortError") return;
    answer = null;
    show(byId("explain-body"));
    showProblem(byId("explain-problem"), problem, explain);
  } finally {
    if (running === mine) byId("explain-body").removeAttribute("aria-busy");
  }
}

// What is looked at

function tokensOf(kind) {
  const source = answer.source_tokens.map((token) => token.text);
  const target = answer.target_tokens.map((token) => token.text);
  // Row t of the decoder was asked by the token before t: the first one is the start.
  return { cross: [target, source], encoder: [source, source], decoder: [target, ["<s>", ...target.slice(0, -1)]] }[kind];
}

const maps = (kind) => answer[`${kind}_attention`];

/** [rows][columns] of the chosen layer and head, or their mean. */
function weights() {
  const layers = look.layer === null ? maps(look.kind) : [maps(look.kind)[look.layer]];
  const heads = layers.flatMap((layer) => look.head === null ? layer : [layer[look.head]]);
  return heads[0].map((row, y) => row.map((_, x) => heads.reduce((sum, head) => sum + head[y][x], 0) / heads.length));
}

// The page

let parts = {};

function render() {
  parts = { sourceChips: [], targetChips: [] };
  const segments = answer.num_segments > 1 ? ` (segment ${answer.segment + 1} of ${answer.num_segments})` : "";
  show(byId("explain-body"),
    el("div", { class: "card" },
      el("h2", {}, `Tokens${segments}`),
      el("p", { class: "fine" }, "Point at a token, or move to it with Tab, to see what it looked at. The gold line is how sure the model was."),
      el("div", { class: "row-label", id: "source-label" }, nameOf(answer.source_language)), sourceRow(),
      el("div", { class: "row-label", id: "target-label" }, nameOf(state.target)), targetRow(),
      answer.retried ? el("p", { class: "notes" }, "A placeholder was lost in this decode, so the translation you get was made in another way instead.") : null),
    el("div", { class: "split" }, attentionCard(), choicesCard()),
    answer.beam ? el("div", { class: "card" }, el("h2", {}, "The search"), el("p", { class: "fine" }, "Grey leaves were considered and left; gold ones are the n-best list."), beamTree(answer.beam, answer.hypotheses)) : null,
    consistency());
  update();
}

function sourceRow() {
  const chips = answer.source_tokens.map((token, index) => chip(token, "encoder", index));
  parts.sourceChips = chips;
  return el("div", { class: "tokens", role: "group", lang: answer.source_language, dir: directionOf(answer.source_language), "aria-labelledby": "source-label" }, chips);
}

function targetRow() {
  const chips = answer.target_tokens.map((token, index) => {
    const button = chip(token, look.kind === "decoder" ? "decoder" : "cross", index);
    button.append(el("span", { class: "bar", "--p": Math.exp(token.log_prob) }));
    return button;
  });
  parts.targetChips = chips;
  return el("div", { class: "tokens", role: "group", lang: state.target, dir: directionOf(state.target), "aria-labelledby": "target-label" }, chips);
}

function chip(token, side, index) {
  const choose = () => {
    const kind = side === "encoder" ? "encoder" : look.kind === "decoder" ? "decoder" : "cross";
    look = { ...look, kind, row: index, ...(kind === look.kind ? {} : { layer: null, head: null }) };
    update();
  };
  return el("button", { type: "button", class: "token", "aria-pressed": "false", onpointerenter: choose, onfocus: choose, onclick: choose }, tokenText(token.text));
}

function attentionCard() {
  parts.kinds = Object.entries(KINDS).map(([kind, { title }]) =>
    el("button", { type: "button", "data-kind": kind, "aria-pressed": "false", onclick: () => { look = { kind, layer: null, head: null, row: null }; update(); } }, title));
  parts.canvas = el("canvas", { role: "img", "aria-label": "" });
  parts.readout = el("p", { class: "readout", role: "status" });
  parts.hint = el("p", { class: "fine" });
  parts.heads = el("div", { class: "heads" });
  return el("div", { class: "card" }, el("h2", {}, "Attention"), el("div", { class: "chips", role: "group", "aria-label": "Which attention" }, parts.kinds), parts.hint,
    el("div", { class: "heat", tabindex: "0", role: "region", "aria-label": "Attention map" }, parts.canvas), parts.readout,
    el("h3", {}, "All heads"), parts.heads);
}

function choicesCard() {
  parts.choicesTitle = el("h2", {}, "Choices");
  parts.choices = el("ul", { class: "choices" });
  return el("div", { class: "card" }, parts.choicesTitle, parts.choices);
}

function consistency() {
  const { same_choices: same, largest_difference: difference } = answer.consistency;
  const greedy = answer.beam ? "" : same ? " The explanation would have chosen every token, too." : " At some token the explanation would have chosen another: a near tie.";
  return el("p", { class: "fine", id: "consistency" }, `${answer.model.name} ${answer.model.version}, ${answer.precision}: decoded in ${answer.decode_ms.toFixed(1)} ms, explained in ${answer.explain_ms.toFixed(1)} ms. ` +
    `Log-probabilities as decoded and as explained differ by at most ${difference ? difference.toExponential(1) : "0"}.${greedy}`);
}

function update() {
  const shown = weights();
  const [rows, columns] = tokensOf(look.kind);
  for (const button of parts.kinds) button.setAttribute("aria-pressed", String(button.dataset.kind === look.kind));
  parts.hint.textContent = KINDS[look.kind].hint;
  light(shown);
  drawLarge(parts.canvas, shown, rows, columns, look.row, (row, column, weight) => {
    parts.readout.textContent = row === null ? summary(shown, rows, columns) : `${tokenText(rows[row])} → ${tokenText(columns[column])}: ${weight.toFixed(4)}`;
  });
  parts.canvas.setAttribute("aria-label", `Attention, ${KINDS[look.kind].title}, ${layerName()}. ${summary(shown, rows, columns)}`);
  parts.readout.textContent = summary(shown, rows, columns);
  showHeads();
  showChoices();
}

function layerName() {
  if (look.layer === null) return "mean of all layers and heads";
  return `layer ${look.layer + 1}, head ${look.head + 1}`;
}

function summary(shown, rows, columns) {
  if (look.row === null || look.row >= shown.length) return `Shown: ${layerName()}.`;
  const row = shown[look.row];
  const order = row.map((weight, index) => [weight, index]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  return `“${tokenText(rows[look.row])}” looks at ${order.map(([weight, index]) => `${tokenText(columns[index])} ${weight.toFixed(2)}`).join(", ")} (${layerName()}).`;
}

/** Light up what the chosen row looks at; the shading is relative to its strongest. */
function light(shown) {
  const row = look.row === null || look.row >= shown.length ? null : shown[look.row];
  const strongest = row ? Math.max(...row) : 1;
  const lit = look.kind === "decoder" ? parts.targetChips : parts.sourceChips;
  const shift = look.kind === "decoder" ? 1 : 0; // column 0 of the decoder is the start, which has no chip
  for (const chips of [parts.sourceChips, parts.targetChips]) {
    chips.forEach((button, index) => {
      const weight = row && chips === lit ? (row[index + shift] ?? 0) / strongest : 0;
      button.style.setProperty("--w", weight.toFixed(3));
      button.dataset.weight = row && chips === lit ? (row[index + shift] ?? 0).toFixed(4) : "";
      button.classList.toggle("strong", weight > 0.62);
      const asking = (look.kind === "encoder" ? parts.sourceChips : parts.targetChips) === chips && index === look.row;
      button.setAttribute("aria-pressed", String(asking));
    });
  }
}

function showHeads() {
  const key = look.kind;
  if (parts.heads.dataset.kind !== key) {
    parts.heads.dataset.kind = key;
    parts.thumbnails = [];
    const all = el("button", { type: "button", class: "all", onclick: () => { look = { ...look, layer: null, head: null }; update(); } }, "mean of all");
    parts.all = all;
    show(parts.heads, el("div", { class: "chips" }, all), maps(key).map((layer, l) => el("div", { class: "layer" }, el("span", {}, `layer ${l + 1}`), layer.map((head, h) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const button = el("button", { type: "button", "aria-label": `Layer ${l + 1}, head ${h + 1}`, "aria-pressed": "false", onclick: () => { look = { ...look, layer: l, head: h }; update(); } }, canvas);
      parts.thumbnails.push([button, l, h, canvas, head]);
      return button;
    }))));
    for (const [, , , canvas, head] of parts.thumbnails) drawSmall(canvas, head);
  }
  parts.all.setAttribute("aria-pressed", String(look.layer === null));
  for (const [button, l, h] of parts.thumbnails) button.setAttribute("aria-pressed", String(look.layer === l && look.head === h));
}

function showChoices() {
  const index = look.kind === "encoder" || look.row === null ? 0 : Math.min(look.row, answer.target_tokens.length - 1);
  const token = answer.target_tokens[index];
  const before = answer.target_tokens.slice(0, index).map((each) => each.text).join("").replaceAll("▁", " ").trim();
  parts.choicesTitle.textContent = before ? `After “${before.length > 40 ? `…${before.slice(-40)}` : before}”` : "The first token";
  show(parts.choices, token.choices.map((choice) => el("li", { class: choice.id === token.id ? "chosen" : null },
    el("span", {}, tokenText(choice.text)), el("span", { class: "meter", "--p": Math.exp(choice.log_prob) }), el("span", {}, percent(choice.log_prob)))));
}
