// How languages are written: their own names and their direction.

const RIGHT_TO_LEFT = new Set(["ar", "ary", "arz", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"]);

const base = (code) => code.toLowerCase().split("-")[0];

/** "rtl" or "ltr"; "auto" where the language is not known yet. */
export const directionOf = (code) => code === "auto" ? "auto" : RIGHT_TO_LEFT.has(base(code)) ? "rtl" : "ltr";

/** A language's name in that language, and the English one where they differ: "português (Portuguese)". */
export function ownName(code, english) {
  let own = english;
  try { own = new Intl.DisplayNames([code], { type: "language", fallback: "none" }).of(code) ?? english; } catch { /* no such code */ }
  return own.toLowerCase() === english.toLowerCase() ? english : `${own} (${english})`;
}

/** Say in which language and direction a node's text is. */
export function mark(node, code) {
  node.dir = directionOf(code);
  if (code === "auto") node.removeAttribute("lang");
  else node.lang = code;
}
