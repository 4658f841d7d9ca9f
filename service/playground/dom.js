// Elements from values. Text goes in as text and nowhere else: nothing on this page parses HTML.

export const byId = (id) => document.getElementById(id);

/** el("p", {class: "quiet", onclick: f}, "text", child, …) */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function show(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
}

/** A problem in its box, with a button where trying again makes sense; null hides it. */
export function showProblem(box, problem, retry = null) {
  box.hidden = problem === null;
  if (problem === null) return show(box);
  const again = retry && el("button", { type: "button", class: "plain", onclick: retry }, "Try again");
  show(box, el("strong", {}, problem.title), el("span", {}, problem.detail), again);
}

export async function copyText(text, button) {
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  button.textContent = (await toClipboard(text)) ? "Copied" : "Copy failed";
  clearTimeout(button.timer);
  button.timer = setTimeout(() => { button.textContent = label; }, 1600);
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // not a secure context: the old way still works
    const area = el("textarea", { class: "visually-hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A pieces' word mark as a visible space; other control symbols as they are. */
export const tokenText = (text) => text.replaceAll("▁", "·") || "∅";

export const percent = (logProb) => {
  const p = 100 * Math.exp(logProb);
  return p >= 99.95 ? "100 %" : p >= 10 ? `${p.toFixed(1)} %` : p >= 0.01 ? `${p.toFixed(2)} %` : "< 0.01 %";
};

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
