// Learn: one sentence through the encoder and the decoder, with the running model's own numbers.

import { postJson } from "./api.js";
import { byId, el, percent, show, showProblem, tokenText } from "./dom.js";
import { fillPairs } from "./explain.js";
import { drawStrip } from "./heatmap.js";
import { state } from "./state.js";

const FIRST = { en: "I like cats.", pt: "Eu gosto de gatos." };
const SHOWN = 6; // values of a vector that are written out

let answer = null;
let running = null;
let at = { source: 0, target: 0, key: 0, encoder_layer: 0, decoder_layer: 0, head: 0 };

export function start() {
  byId("learn-form").addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  byId("learn-pair").addEventListener("change", () => {
    const source = byId("learn-pair").value.split(" ")[0];
    if (Object.values(FIRST).includes(byId("learn-text").value)) byId("learn-text").value = FIRST[source] ?? "";
  });
  addEventListener("themechange", () => answer && render());
}

export function enter() {
  if (answer) return;
  fillPairs(byId("learn-pair"));
  byId("learn-text").value ||= FIRST[byId("learn-pair").value.split(" ")[0]] ?? "";
  if (byId("learn-text").value) load();
}

export function leave() {
  running?.abort();
}

async function load(keep = false) {
  const [source, target] = byId("learn-pair").value.split(" ");
  if (!keep) at = { source: 0, target: 0, key: 0, encoder_layer: 0, decoder_layer: 0, head: 0 };
  const numbers = { encoder_layer: at.encoder_layer, decoder_layer: at.decoder_layer, head: at.head };
  running?.abort();
  const mine = new AbortController();
  running = mine;
  showProblem(byId("learn-problem"), null);
  try {
    const found = await postJson("v1/explain", { text: byId("learn-text").value, source, target, runners_up: 5, numbers }, mine.signal);
    if (running !== mine) return;
    answer = found;
    render();
  } catch (problem) {
    if (running !== mine || problem.name === "AbortError") return;
    if (!keep) { answer = null; show(byId("learn-body")); }
    showProblem(byId("learn-problem"), problem, () => load(keep));
  }
}

// Pieces

const write = (value) => value.toFixed(4).replace("-", "−");
const exact = (value) => el("span", { class: "num", title: String(value) }, write(value));

function vector(name, values) {
  const canvas = el("canvas", { role: "img", "aria-label": `${name}: ${values.length} numbers from ${write(Math.min(...values))} to ${write(Math.max(...values))}` });
  const first = values.slice(0, SHOWN).flatMap((value) => [exact(value), "  "]);
  const node = el("div", { class: "vector", "data-vector": name }, el("span", { class: "name" }, name), canvas, el("div", { class: "values" }, "[ ", first, values.length > SHOWN ? `… ${values.length} numbers ]` : "]"));
  drawings.push(() => drawStrip(canvas, values));
  return node;
}

function picker(label, texts, chosen, choose) {
  return el("div", { class: "tokens", role: "group", "aria-label": label }, texts.map((text, index) =>
    el("button", { type: "button", class: "token", "aria-pressed": String(index === chosen), onclick: () => { choose(index); render(); } }, tokenText(text))));
}

function level(label, count, name) {
  const select = el("select", { onchange: () => { at[name] = Number(select.value); load(true); } },
    Array.from({ length: count }, (_, index) => el("option", { value: index }, String(index + 1))));
  select.value = String(at[name]);
  return el("label", {}, `${label} `, select);
}

function step(title, ...content) {
  return el("section", { class: "step" }, el("h2", {}, title), content);
}

/** Scores of one query: dot product, divided by √dh, through the softmax. */
function scoresTable(caption, tokens, scores, weights, headDim) {
  const root = Math.sqrt(headDim);
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", { class: "visually-hidden" }, caption),
    el("thead", {}, el("tr", {}, ["key of", "q·k", `q·k / √${headDim}`, "softmax"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, tokens.map((text, index) => el("tr", { class: weights[index] === Math.max(...weights) ? "on" : null },
      el("th", { scope: "row" }, tokenText(text)), el("td", {}, exact(scores[index] * root)), el("td", {}, exact(scores[index])), el("td", {}, exact(weights[index])))))));
}

function formula(...parts) {
  return el("div", { class: "formula" }, parts);
}

function softmaxLine(scores, weights, index) {
  const sum = scores.reduce((total, score) => total + Math.exp(score - scores[index]), 0);
  return formula(`1 / Σ e^(score − ${write(scores[index])}) = 1 / ${write(sum)} = ${write(weights[index])}`);
}

// The walk

let drawings = [];

function render() {
  drawings = [];
  const numbers = answer.numbers;
  const sources = answer.source_tokens.map((token) => token.text);
  const targets = answer.target_tokens.map((token) => token.text);
  at.source = Math.min(at.source, sources.length - 1);
  at.target = Math.min(at.target, targets.length - 1);
  const focused = document.activeElement?.textContent;
  show(byId("learn-body"),
    step("1 · Words become tokens", el("p", {}, `The sentence becomes ${sources.length} tokens of a vocabulary of ${answer.architecture.vocab_size.toLocaleString("en")}; the last one says that it ends. Choose one to follow it.`),
      picker("Source token", sources, at.source, (index) => { at.source = index; })),
    embeddingStep(numbers), projectionStep(numbers), scoreStep(numbers, sources), mixStep(numbers),
    crossStep(numbers, sources, targets), logitsStep(numbers, targets));
  for (const draw of drawings) draw();
  if (focused) [...byId("learn-body").querySelectorAll("[aria-pressed=true]")].find((button) => button.textContent === focused)?.focus();
}

function embeddingStep(numbers) {
  const i = at.source;
  const embedding = numbers.source_embedding[i];
  const position = numbers.source_position[i];
  const sum = embedding.map((value, index) => value + position[index]);
  return step("2 · Embedding and position", el("p", {}, `A token is ${embedding.length} learned numbers, multiplied by √${embedding.length}. Attention does not know about order, so the place in the sentence (here ${i}) is added as waves of different lengths.`),
    vector("embedding · √d", embedding), vector(`position ${i}`, position), vector("sum", sum),
    formula(`${write(embedding[0])} + ${write(position[0])} = ${write(sum[0])}`));
}

function projectionStep(numbers) {
  const { encoder_layers: layers, num_heads: heads, norm } = answer.architecture;
  const i = at.source;
  const before = norm === "pre" ? "The sum is normalized (mean 0, variance 1, then a learned scale), and three" : "Three";
  return step("3 · Query, key and value", el("p", {}, `${before} learned matrices make a query (what am I looking for?), a key (what do I offer?) and a value (what do I say?). Each of ${heads} heads has its own.`),
    el("div", { class: "ask" }, level("Layer", layers, "encoder_layer"), level("Head", heads, "head")),
    norm === "pre" ? vector("normalized", numbers.encoder_normed[i]) : null,
    vector("query", numbers.encoder_query[i]), vector("key", numbers.encoder_key[i]), vector("value", numbers.encoder_value[i]));
}

function scoreStep(numbers, sources) {
  const i = at.source;
  const scores = numbers.encoder_scores[i];
  const weights = numbers.encoder_attention[i];
  const best = weights.indexOf(Math.max(...weights));
  const headDim = numbers.encoder_query[i].length;
  return step("4 · Who looks at whom", el("p", {}, `The query of “${tokenText(sources[i])}” is multiplied with every key. Divided by √${headDim} the products stay moderate; the softmax makes of them shares that sum to 1.`),
    scoresTable(`Scores of ${tokenText(sources[i])}`, sources, scores, weights, headDim), softmaxLine(scores, weights, best));
}

function mixStep(numbers) {
  const i = at.source;
  const input = numbers.encoder_in[i];
  const change = numbers.encoder_change[i];
  const after = numbers.encoder_after[i];
  const { num_heads: heads, encoder_layers: layers, norm } = answer.architecture;
  return step("5 · Mix, add, go on", el("p", {}, `The values, taken by those shares, are this head’s answer. All ${heads} heads together pass one more matrix, and the result is added to what came in: the residual${norm === "post" ? ", then normalized" : ""}.`),
    vector("Σ share · value", numbers.encoder_mixed[i]), vector("came in", input), vector("all heads", change), vector("goes on", after),
    norm === "pre" ? formula(`${write(input[0])} + ${write(change[0])} = ${write(after[0])}`) : null,
    el("p", {}, `A small network then works on every token by itself, again with a residual. That is one layer; the encoder has ${layers}.`));
}

function crossStep(numbers, sources, targets) {
  const t = at.target;
  const before = t === 0 ? "the start" : `“${tokenText(targets[t - 1])}”`;
  const headDim = numbers.cross_query[t].length;
  return step("6 · The decoder looks at the source", el("p", {}, `The decoder writes one token at a time. It has read ${before} last, looked back at its own words (never ahead), and now asks the source. Choose the token that it is about to write.`),
    picker("Target token", targets, t, (index) => { at.target = index; }),
    el("div", { class: "ask" }, level("Decoder layer", answer.architecture.decoder_layers, "decoder_layer"), level("Head", answer.architecture.num_heads, "head")),
    vector("query", numbers.cross_query[t]),
    scoresTable(`Scores before ${tokenText(targets[t])}`, sources, numbers.cross_scores[t], numbers.cross_attention[t], headDim),
    vector("Σ share · value", numbers.cross_mixed[t]));
}

function logitsStep(numbers, targets) {
  const t = at.target;
  const token = answer.target_tokens[t];
  return step("7 · Which word?", el("p", {}, `What leaves the last layer is compared with the embedding of every token of the vocabulary: a logit for each. The softmax turns them into probabilities; the likeliest is written, and the walk begins again with it.`),
    vector("leaves the decoder", numbers.hidden[t]),
    el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Logits" }, el("table", {}, el("caption", { class: "visually-hidden" }, `Likeliest tokens for ${tokenText(targets[t])}`),
      el("thead", {}, el("tr", {}, ["token", "logit", `e^(logit − ${write(token.log_sum_exp)})`].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, token.choices.map((choice) => el("tr", { class: choice.id === token.id ? "on" : null },
        el("th", { scope: "row" }, tokenText(choice.text)), el("td", {}, exact(choice.logit)), el("td", {}, percent(choice.log_prob))))))),
    el("p", { class: "fine" }, `The whole sentence: “${answer.text}”`));
}
