// The page: which view is shown, the theme, and what the server serves. Views are loaded when first looked at.

import { GONE, getJson } from "./api.js";
import { byId, el, show, showProblem } from "./dom.js";
import { readFragment, state } from "./state.js";
import * as translate from "./translate.js";

const LOADERS = {
  translate: async () => translate,
  explain: () => import("./explain.js"),
  live: () => import("./live.js"),
  learn: () => import("./learn.js"),
};
const TITLES = { translate: "Dragoman", explain: "Explain · Dragoman", live: "Live · Dragoman", learn: "Learn · Dragoman" };
const started = new Map(); // view -> module
let current = null;

async function route() {
  const { view, hasText } = readFragment();
  document.documentElement.dataset.view = view;
  document.title = TITLES[view];
  for (const link of document.querySelectorAll("nav [data-for]")) {
    link.toggleAttribute("aria-current", false);
    if (link.dataset.for === view) link.setAttribute("aria-current", "page");
  }
  if (current !== null && current !== view) started.get(current)?.leave?.();
  current = view;
  if (await ready(view) && current === view) started.get(view).enter(hasText);
}

/** Whether the view's module is there and started; says so where it cannot be had. */
async function ready(view) {
  if (started.has(view)) return true;
  try {
    const module = await LOADERS[view]();
    if (!started.has(view)) {
      started.set(view, module);
      module.start();
    }
    return true;
  } catch {
    showProblem(byId(`${view}-problem`), { title: GONE, detail: "A part of this page could not be loaded." }, () => location.reload());
    return false;
  }
}

const NEXT = { system: "light", light: "dark", dark: "system" };
const SAID = { system: "as the system", light: "light", dark: "dark" };

function startTheme() {
  const button = byId("theme");
  const root = document.documentElement;
  const say = () => button.setAttribute("aria-label", `Colour theme: ${SAID[root.dataset.theme ?? "system"]}`);
  say();
  button.addEventListener("click", () => {
    const theme = NEXT[root.dataset.theme ?? "system"];
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    try { localStorage.setItem("dragoman.theme", theme); } catch { /* then it lasts as long as the page */ }
    say();
    dispatchEvent(new Event("themechange"));
  });
}

async function loadCatalog() {
  try {
    const [languages, models] = await Promise.all([getJson("v1/languages"), getJson("v1/models")]);
    state.languages = languages.languages;
    state.pairs = languages.pairs;
    show(byId("models"), models.models.map((model) => el("span", {}, `${model.name} ${model.version} · ${model.precision}`)));
    showProblem(byId("problem"), null);
    return true;
  } catch (problem) {
    showProblem(byId("problem"), problem, problem.title === GONE ? () => location.reload() : null);
    return false;
  }
}

startTheme();
readFragment();
await loadCatalog();
addEventListener("hashchange", route);
await route();
document.documentElement.dataset.ready = "";
