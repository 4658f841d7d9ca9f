// Attention as a picture: rows ask, columns are looked at, and the darkest cell is the strongest of its map.

import { el, tokenText } from "./dom.js";

const FONT = '13px ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace';

/** Colours of the page as the canvas needs them: resolved. */
function colours(node) {
  const probe = el("span", { class: "visually-hidden" });
  node.append(probe);
  const resolve = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const found = { heat: resolve("--heat"), ink: resolve("--ink"), quiet: resolve("--quiet"), sunk: resolve("--sunk"), gold: resolve("--gold") };
  probe.remove();
  return found;
}

function sharp(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** A thumbnail without labels. */
export function drawSmall(canvas, weights, size = 58) {
  const context = sharp(canvas, size, size);
  const { heat, sunk } = colours(canvas.parentElement);
  context.fillStyle = sunk;
  context.fillRect(0, 0, size, size);
  const height = size / weights.length;
  const width = size / weights[0].length;
  context.fillStyle = heat;
  const strongest = Math.max(...weights.flat());
  weights.forEach((row, y) => row.forEach((weight, x) => {
    context.globalAlpha = weight / strongest;
    context.fillRect(x * width, y * height, Math.ceil(width), Math.ceil(height));
  }));
}

/** The large map. `on(row, column, weight)` follows the pointer; nulls when it leaves. */
export function drawLarge(canvas, weights, rowTokens, columnTokens, chosen, on) {
  const cell = Math.max(16, Math.min(34, Math.floor(620 / Math.max(1, columnTokens.length))));
  const measure = canvas.getContext("2d");
  measure.font = FONT;
  const left = 12 + Math.max(...rowTokens.map((text) => measure.measureText(tokenText(text)).width));
  const top = 12 + Math.max(...columnTokens.map((text) => measure.measureText(tokenText(text)).width));
  const context = sharp(canvas, left + cell * columnTokens.length + 8, top + cell * rowTokens.length + 8);
  const { heat, ink, quiet, sunk, gold } = colours(canvas.parentElement);
  context.font = FONT;
  context.textBaseline = "middle";
  columnTokens.forEach((text, x) => {
    context.save();
    context.translate(left + x * cell + cell / 2, top - 6);
    context.rotate(-Math.PI / 2);
    context.fillStyle = quiet;
    context.fillText(tokenText(text), 0, 0);
    context.restore();
  });
  context.textAlign = "right";
  rowTokens.forEach((text, y) => {
    context.fillStyle = y === chosen ? ink : quiet;
    context.fillText(tokenText(text), left - 6, top + y * cell + cell / 2);
  });
  const strongest = Math.max(...weights.flat());
  weights.forEach((row, y) => row.forEach((weight, x) => {
    context.globalAlpha = 1;
    context.fillStyle = sunk;
    context.fillRect(left + x * cell, top + y * cell, cell - 1, cell - 1);
    context.globalAlpha = weight / strongest;
    context.fillStyle = heat;
    context.fillRect(left + x * cell, top + y * cell, cell - 1, cell - 1);
  }));
  context.globalAlpha = 1;
  if (chosen !== null && chosen < weights.length) {
    context.strokeStyle = gold;
    context.lineWidth = 2;
    context.strokeRect(left - 1, top + chosen * cell - 1, cell * columnTokens.length + 1, cell + 1);
  }
  canvas.onpointermove = (event) => {
    const x = Math.floor((event.offsetX - left) / cell);
    const y = Math.floor((event.offsetY - top) / cell);
    const inside = y >= 0 && y < weights.length && x >= 0 && x < weights[0].length;
    on(inside ? y : null, inside ? x : null, inside ? weights[y][x] : null);
  };
  canvas.onpointerleave = () => on(null, null, null);
}

/** Signed numbers as a strip: one side of zero in one colour, the other in another. */
export function drawStrip(canvas, values) {
  const { heat, gold, sunk } = colours(canvas.parentElement);
  canvas.width = values.length;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  context.fillStyle = sunk;
  context.fillRect(0, 0, values.length, 1);
  const largest = Math.max(...values.map(Math.abs)) || 1;
  values.forEach((value, x) => {
    context.globalAlpha = Math.min(1, Math.abs(value) / largest);
    context.fillStyle = value < 0 ? gold : heat;
    context.fillRect(x, 0, 1, 1);
  });
}

export function drawLine(canvas, values) {
  const width = canvas.clientWidth || 140;
  const context = sharp(canvas, width, 30);
  canvas.style.width = "";
  const { heat } = colours(canvas.parentElement);
  const largest = Math.max(1, ...values);
  const x = (index) => (index / Math.max(1, values.length - 1)) * width;
  const y = (value) => 28 - (value / largest) * 25;
  context.strokeStyle = heat;
  context.lineWidth = 1.8;
  context.beginPath();
  values.forEach((value, index) => context.lineTo(x(index), y(value)));
  context.stroke();
  context.globalAlpha = 0.15;
  context.lineTo(width, 30);
  context.lineTo(0, 30);
  context.fillStyle = heat;
  context.fill();
}
