// The server's API, and its refusals as one shape: {title, detail, status, retryAfter}.

import { state } from "./state.js";

export class Problem extends Error {
  constructor(title, detail, status = 0, retryAfter = null) {
    super(detail);
    Object.assign(this, { title, detail, status, retryAfter });
  }
}

export const GONE = "The server cannot be reached";
const TITLES = { 403: "A key is needed", 413: "Too long", 429: "The server is busy", 503: "The server is not ready" };
const HINTS = { 403: "Open Options and enter an API key." };

export async function getJson(path) {
  return (await send(path, {})).json();
}

export async function postJson(path, body, signal) {
  return (await send(path, request(body, signal))).json();
}

/** Server-sent events of a POST, which EventSource cannot do: calls `on(event, data)` for each. */
export async function postStream(path, body, signal, on) {
  const response = await send(path, request(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => { throw unreachable(error); });
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) dispatch(block, on);
  }
}

function dispatch(block, on) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return; // a heartbeat
  const content = JSON.parse(data);
  if (name === "error") throw new Problem(content.title, content.detail, content.status);
  on(name, content);
}

function request(body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (state.key) headers.Authorization = `Bearer ${state.key}`;
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

async function send(path, options) {
  const response = await fetch(path, options).catch((error) => { throw unreachable(error); });
  if (response.ok) return response;
  throw await refusal(response);
}

function unreachable(error) {
  return error.name === "AbortError" ? error : new Problem(GONE, "It may be restarting, or the network may be down.");
}

async function refusal(response) {
  const content = await response.json().catch(() => ({}));
  const status = response.status;
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  const detail = [content.detail ?? `The answer was ${status}.`, HINTS[status]].filter(Boolean).join(" ");
  return new Problem(TITLES[status] ?? content.title ?? "Refused", detail, status, retryAfter);
}
