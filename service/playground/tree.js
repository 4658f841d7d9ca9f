// Beam search as a tree that grows step by step: x is time, a path is a sentence in the making.

import { calm, el, percent, svg, tokenText } from "./dom.js";

const ROW = 24;
const MARGIN = 18;

/** The tree with its player and its leaves. What never entered the beam is shown on demand: it is most of it. */
export function beamTree(beam, hypotheses) {
  const place = el("div");
  const all = el("input", { type: "checkbox" });
  const redraw = () => place.replaceChildren(...picture(beam, hypotheses, all.checked));
  all.addEventListener("change", redraw);
  redraw();
  return [place, el("label", { class: "check fine" }, all, " also show candidates that never entered the beam"), leaves(hypotheses)];
}

function picture(beam, hypotheses, whole) {
  const nodes = beam.nodes.map((node, index) => ({ ...node, index, children: [] }));
  const shown = nodes.filter((node) => whole || node.state !== "cut");
  for (const node of shown) if (node.parent !== null) nodes[node.parent].children.push(node);
  const best = new Set();
  for (let node = nodes.find((each) => each.hypothesis === 0); node; node = nodes[node.parent]) best.add(node.index);
  const { width, height } = layOut(nodes, shown, best);
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(hypotheses) });
  const groups = shown.filter((node) => node.parent !== null).map((node) => [node.step, draw(node, nodes[node.parent], best)]);
  drawing.append(...groups.map(([, group]) => group));
  const frame = el("div", { class: "tree", tabindex: "0", role: "region", "aria-label": "Beam search tree" }, drawing);
  return [player(beam.num_steps, groups), frame];
}

function describe(hypotheses) {
  return `Beam search tree whose leaves are ${hypotheses.length} hypotheses; the list below names them.`;
}

/** Leaves get rows of their own, parents stand in the middle of their children, the best path on top. */
function layOut(nodes, shown, best) {
  let row = 0;
  const visit = (node) => {
    if (!node.children.length) node.y = MARGIN + ROW * row++;
    else {
      node.children.sort((a, b) => best.has(b.index) - best.has(a.index) || b.total - a.total);
      node.children.forEach(visit);
      node.y = node.children[0].y;
    }
  };
  visit(nodes[0]);
  const widths = [];
  for (const node of shown) widths[node.step] = Math.max(widths[node.step] ?? 0, tokenText(node.token).length * 7.9 + 34);
  const starts = [MARGIN];
  for (let step = 1; step <= widths.length; step++) starts[step] = starts[step - 1] + (step === 1 ? 26 : widths[step - 1]);
  for (const node of shown) node.x = starts[node.step];
  return { width: Math.ceil(starts[widths.length] + MARGIN), height: MARGIN * 2 + ROW * (row - 1) };
}

function draw(node, parent, best) {
  const kinds = [best.has(node.index) && "best", node.hypothesis !== null && "done", ["cut", "dropped"].includes(node.state) && node.hypothesis === null && "pruned"];
  const bend = Math.min(18, (node.x - parent.x) / 2);
  const from = parent.step === 0 ? parent.x : node.x - 22;
  const path = `M${parent.step === 0 ? parent.x : from} ${parent.y} C${from + bend} ${parent.y} ${node.x - bend} ${node.y} ${node.x} ${node.y}`;
  const rank = node.hypothesis === null ? "" : ` #${node.hypothesis + 1}`;
  return svg("g", { class: kinds.filter(Boolean).join(" ") },
    svg("path", { d: path }),
    svg("circle", { cx: node.x, cy: node.y, r: node.hypothesis === null ? 3.5 : 5 }),
    svg("text", { x: node.x + 8, y: node.y + 4 }, tokenText(node.token) + rank),
    svg("title", {}, `${tokenText(node.token)}: ${percent(node.log_prob)}, sum ${node.total.toFixed(3)}, ${node.state}`));
}

function player(numSteps, groups) {
  const slider = el("input", { type: "range", min: 0, max: numSteps, value: numSteps, "aria-label": "Step of the search" });
  const said = el("span", { class: "readout" });
  let timer = 0;
  const showStep = () => {
    const now = Number(slider.value);
    for (const [step, group] of groups) group.classList.toggle("later", step > now);
    said.textContent = `step ${now} of ${numSteps}`;
  };
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
  const button = el("button", { type: "button", onclick: () => {
    if (timer) return stop();
    if (Number(slider.value) >= numSteps) slider.value = 0;
    button.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      showStep();
      if (Number(slider.value) >= numSteps || !button.isConnected) stop();
    }, calm() ? 900 : 450);
    showStep();
  } }, "Play");
  slider.addEventListener("input", () => { stop(); showStep(); });
  showStep();
  return el("div", { class: "player" }, button, slider, said);
}

function leaves(hypotheses) {
  return el("ol", { class: "alternatives" }, hypotheses.map((each) =>
    el("li", {}, each.text, el("span", { class: "score" }, each.score.toFixed(4)))));
}
