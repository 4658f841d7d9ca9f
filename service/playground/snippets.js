// The current request as code: curl, Python without dependencies, and DeepL's own client.

const DEEPL_TARGETS = { en: "EN-US", pt: "PT-BR" }; // their client refuses the bare codes

export function snippet(kind, origin, body, key) {
  return { curl, python, deepl }[kind](origin, body, key);
}

function curl(origin, body, key) {
  const lines = [`curl ${origin}/v1/translate`, "-H 'Content-Type: application/json'"];
  if (key) lines.push("-H \"Authorization: Bearer $DRAGOMAN_KEY\"");
  lines.push(`-d ${shellQuoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function python(origin, body, key) {
  const headers = key
    ? '{"Content-Type": "application/json", "Authorization": f"Bearer {os.environ[\'DRAGOMAN_KEY\']}"}'
    : '{"Content-Type": "application/json"}';
  return [
    key ? "import json\nimport os\nimport urllib.request" : "import json\nimport urllib.request",
    "",
    `body = ${pythonValue(body)}`,
    `request = urllib.request.Request("${origin}/v1/translate", json.dumps(body).encode(), ${headers})`,
    "with urllib.request.urlopen(request) as response:",
    "    print(json.load(response)[\"translations\"][0][\"text\"])",
  ].join("\n");
}

function deepl(origin, body, key) {
  const target = DEEPL_TARGETS[body.target] ?? body.target.toUpperCase();
  const source = body.source === "auto" ? "" : `, source_lang="${body.source.toUpperCase()}"`;
  const { text, source: _source, target: _target, ...options } = body;
  const extra = Object.keys(options).length ? `, extra_body_parameters=${pythonValue(options)}` : "";
  return [
    key ? "import os\n\nimport deepl" : "import deepl",
    "",
    `client = deepl.DeepLClient(${key ? 'os.environ["DRAGOMAN_KEY"]' : '"none"'}, server_url="${origin}")`,
    `print(client.translate_text(${pythonValue(text)}, target_lang="${target}"${source}${extra}).text)`,
  ].join("\n");
}

function pythonValue(value) {
  if (value === null) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value); // a JSON string is a Python string too
  return `{${Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${pythonValue(inner)}`).join(", ")}}`;
}
