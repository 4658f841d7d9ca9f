// Translate: two panes, the translation as it is decoded, and all that the server says about it.

import { postStream } from "./api.js";
import { byId, copyText, el, show, showProblem } from "./dom.js";
import { directionOf, mark, ownName } from "./languages.js";
import { snippet } from "./snippets.js";
import { fragment, nameOf, setKey, state, writeFragment } from "./state.js";

const PAUSE_MS = 400; // after the last keystroke
const REASONS = {
  length: "stopped at the length limit: something may be missing",
  repetition: "stopped because it began to repeat itself",
  deadline: "stopped because time ran out: something is missing",
};
const WARNINGS = {
  sentence_split: "a sentence was too long for the model and was split",
  placeholder_retried: "an address, variable or term was lost at first; translated again in another way, all are there",
  placeholder_lost: "an address, variable or glossary term is missing or doubled",
  unknown_characters_copied: "characters that the model does not know were copied, not translated",
  alternatives_dropped: "some alternatives had lost a placeholder and are not shown",
  prefix_continued: "the translation goes on in the last word of the given beginning",
};

let running = null; // AbortController of the request under way
let timer = 0;
let result = null; // the last whole answer
let segments = []; // {link, index} as shown
let kind = "curl";

export function start() {
  fillLanguages();
  byId("text").addEventListener("input", () => { changed(); schedule(PAUSE_MS); });
  byId("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) schedule(0);
  });
  byId("go").addEventListener("click", () => schedule(0));
  byId("clear").addEventListener("click", clear);
  byId("swap").addEventListener("click", swap);
  byId("source").addEventListener("change", () => { state.source = byId("source").value; fillTargets(); changed(); schedule(0); });
  byId("target").addEventListener("change", () => { state.target = byId("target").value; changed(); schedule(0); });
  byId("copy").addEventListener("click", () => copyText(byId("output").dataset.text ?? "", byId("copy")));
  byId("share").addEventListener("click", () => {
    writeFragment("translate");
    copyText(location.href, byId("share"));
  });
  startOptions();
  startSnippets();
}

export function enter(hasText) {
  fillLanguages();
  if (byId("text").value !== state.text) {
    byId("text").value = state.text;
    changed();
    if (hasText) schedule(0);
  } else changed();
}

// Languages

function fillLanguages() {
  const sources = state.languages.filter((language) => language.targets.length);
  const options = [["auto", "Detect language"], ...byName(sources.map((language) => language.code))];
  fillSelect(byId("source"), options, state.source);
  state.source = byId("source").value;
  fillTargets();
}

function fillTargets() {
  const reachable = new Set(state.pairs.filter((pair) => state.source === "auto" || pair.source === state.source).map((pair) => pair.target));
  fillSelect(byId("target"), byName([...reachable]), state.target);
  state.target = byId("target").value || state.target;
}

/** [code, name] by name: the letters that one types find a language by its own name. */
function byName(codes) {
  return codes.map((code) => [code, ownName(code, nameOf(code))]).sort((a, b) => a[1].localeCompare(b[1]));
}

function fillSelect(select, options, wanted) {
  show(select, options.map(([value, label]) => el("option", { value }, label)));
  if (options.some(([value]) => value === wanted)) select.value = wanted;
}

function swap() {
  const detected = result?.translations[0].source;
  const from = state.source === "auto" ? detected : state.source;
  const reversed = state.pairs.some((pair) => pair.source === state.target && (!from || pair.target === from));
  if (!reversed) return byId("status").replaceChildren("This server does not translate that way round.");
  const text = byId("output").dataset.text;
  [state.source, state.target] = [state.target, from ?? state.target];
  fillLanguages();
  if (text) byId("text").value = text;
  changed();
  schedule(0);
}

// Options

function startOptions() {
  byId("key").value = state.key;
  byId("options-form").addEventListener("submit", (event) => event.preventDefault());
  byId("options").addEventListener("change", () => {
    const beam = Number(byId("beam").value);
    const best = Number(byId("nbest").value);
    if (best > beam) byId("beam").value = [1, 2, 4, 8].find((size) => size >= best);
    state.options = readOptions();
    if (byId("key").value !== state.key) setKey(byId("key").value);
    changed();
    schedule(0);
  });
}

function readOptions() {
  const options = { beam_size: Number(byId("beam").value), n_best: Number(byId("nbest").value) };
  if (byId("penalty").value !== "") options.length_penalty = Number(byId("penalty").value);
  if (byId("prefix").value.trim()) options.target_prefix = byId("prefix").value.trim();
  const glossary = byId("glossary").value.split("\n").map((line) => line.split("=").map((part) => part.trim()));
  const terms = glossary.filter(([term]) => term).map(([term, translation]) => [term, translation || term]);
  if (terms.length) options.glossary = Object.fromEntries(terms);
  if (byId("strict").checked) options.strict = true;
  return options;
}

function body() {
  const given = Object.entries(state.options).filter(([name, value]) => !(["beam_size", "n_best"].includes(name) && value === 1));
  return { text: byId("text").value, source: state.source, target: state.target, ...Object.fromEntries(given) };
}

// Code

function startSnippets() {
  const tabs = [...document.querySelectorAll("#snippets [role=tab]")];
  const choose = (tab) => {
    kind = tab.dataset.kind;
    for (const other of tabs) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    byId("code").setAttribute("aria-labelledby", tab.id);
    showSnippet();
  };
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      choose(next);
      next.focus();
    });
  });
  byId("copy-code").addEventListener("click", () => copyText(byId("code").textContent, byId("copy-code")));
}

function showSnippet() {
  byId("code").textContent = snippet(kind, location.origin, body(), state.key);
}

// Translating

function changed() {
  state.text = byId("text").value;
  mark(byId("text"), state.source);
  const count = [...state.text].length;
  byId("count").textContent = `${count} character${count === 1 ? "" : "s"}`;
  showSnippet();
}

function clear() {
  byId("text").value = "";
  changed();
  stop();
  reset();
  byId("output").replaceChildren(el("p", { class: "empty" }, "The translation appears here, word by word."));
  writeFragment("translate");
  byId("text").focus();
}

function schedule(delay) {
  clearTimeout(timer);
  timer = setTimeout(run, delay);
}

function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
}

function reset() {
  result = null;
  segments = [];
  byId("output").dataset.text = "";
  for (const id of ["stats", "notes", "alternatives", "status"]) show(byId(id));
  showProblem(byId("problem"), null);
}

async function run() {
  stop();
  changed();
  writeFragment("translate");
  if (!state.text.trim()) return reset();
  const mine = new AbortController();
  running = mine;
  const output = byId("output");
  reset();
  output.replaceChildren();
  mark(output, state.target);
  output.toggleAttribute("data-busy", true);
  try {
    await postStream("v1/translate/stream", body(), mine.signal, receive);
  } catch (problem) {
    if (running === mine) fail(problem);
  } finally {
    if (running === mine) {
      output.toggleAttribute("data-busy", false);
      running = null;
    }
  }
}

function fail(problem) {
  const wait = problem.status === 429 || problem.status === 503 ? Math.min(problem.retryAfter ?? 2, 30) : null;
  showProblem(byId("problem"), wait ? { ...problem, title: problem.title, detail: `${problem.detail} Trying again in ${Math.ceil(wait)} s.` } : problem, () => schedule(0));
  if (wait) schedule(wait * 1000);
}

function receive(event, data) {
  if (event === "token") addText(data.segment, data.text);
  else if (event === "segment") finishSegment(data);
  else if (event === "done") finish(data);
}

function addText(index, text) {
  const output = byId("output");
  let entry = segments.find((each) => each.index === index);
  if (!entry) {
    entry = { index, link: el("a", { class: "segment", title: "Explain this" }) };
    segments.push(entry);
    output.append(entry.link);
  }
  // What separates segments stays outside of the link.
  if (!entry.link.textContent) {
    const blank = /^\s*/.exec(text)[0];
    if (blank) entry.link.before(blank);
    entry.link.append(text.slice(blank.length));
  } else entry.link.append(text);
  output.dataset.text += text;
}

function finishSegment(segment) {
  const entry = segments.find((each) => each.index === segment.index);
  if (!entry) return;
  entry.link.href = fragment("explain", { segment: segment.index });
  const trouble = segment.finish_reason !== "eos" || segment.warnings.length > 0;
  entry.link.classList.toggle("trouble", trouble);
}

function finish(answer) {
  result = answer;
  const translation = answer.translations[0];
  byId("output").dataset.text = translation.text;
  if (state.source === "auto") byId("source").options[0].text = `Detected: ${nameOf(translation.source)}`;
  const num = translation.segments.length;
  byId("status").textContent = `${num} segment${num === 1 ? "" : "s"} translated`;
  showStats(answer, translation);
  showNotes(translation);
  showAlternatives(translation);
}

function showStats(answer, translation) {
  const { queue_ms: queue, encode_ms: encode, decode_ms: decode } = answer.timings;
  const tokens = translation.segments.reduce((sum, segment) => sum + segment.num_tokens, 0);
  const values = [
    ["queue", `${queue.toFixed(1)} ms`],
    ["encode", `${encode.toFixed(1)} ms`],
    ["decode", `${decode.toFixed(1)} ms`],
    ["tokens", tokens],
    ["speed", decode > 0 ? `${Math.round(1000 * tokens / decode)} tokens/s` : "from the cache"],
  ];
  if (translation.pivot) values.push(["through", nameOf(translation.pivot)]);
  if (translation.detected) values.push(["detected", `${nameOf(translation.source)}, ${Math.round(100 * translation.detected.confidence)} % sure`]);
  values.push(["model", `${answer.model.name} ${answer.model.version}`]);
  show(byId("stats"), values.map(([name, value]) => el("span", {}, el("b", {}, name), ` ${value}`)));
}

function showNotes(translation) {
  const notes = translation.segments.flatMap((segment, index) => [
    ...(segment.finish_reason === "eos" ? [] : [REASONS[segment.finish_reason] ?? segment.finish_reason]),
    ...segment.warnings.map((warning) => WARNINGS[warning] ?? warning),
  ].map((note) => [index, note]));
  const where = (index) => translation.segments.length > 1 ? `Segment ${index + 1}: ` : "";
  show(byId("notes"), notes.length ? el("ul", { class: "notes" }, notes.map(([index, note]) => el("li", {}, where(index), note))) : null);
}

function showAlternatives(translation) {
  const lists = translation.segments.filter((segment) => segment.alternatives.length).map((segment) => [
    el("h2", {}, translation.segments.length > 1 ? `Other ways to say “${segment.text}”` : "Other ways to say it"),
    el("ol", { class: "alternatives" }, segment.alternatives.map((other) =>
      el("li", { lang: state.target, dir: directionOf(state.target) }, other.text, el("span", { class: "score" }, other.score.toFixed(3))))),
  ]);
  show(byId("alternatives"), lists.flat());
}
