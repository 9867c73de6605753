// The request on the page as a call from a shell and from Python. A key is never part of it.

import { line, write } from "./json.js";

const PYTHON_WORDS = { true: "True", false: "False", null: "None" };
const TYPES = {
  choice: ["Choice", ["instructions", "criteria"]],
  score: ["Score", ["instructions", "criteria"]],
  noul: ["Noul", ["instructions", "criteria"]],
};
const OWN = ["state", "questions", "model"];

/** For a POSIX shell. `keyed`: the server wants a key, taken from the environment. */
export function curl(text, url, keyed) {
  const lines = [`curl ${quoted(`${url}v1/systemone`)}`, "-H 'Content-Type: application/json'"];
  if (keyed) lines.push('-H "Authorization: Bearer $TYPESAFE_API_KEY"');
  lines.push(`--data-binary ${quoted(text)}`);
  return lines.join(" \\\n  ");
}

/** For the published Python client, typesafe-sdk. */
export function python(request, url, keyed) {
  const used = new Set();
  const questions = [];
  for (const [id, question] of request.get("questions") ?? []) {
    questions.push(`        ${JSON.stringify(id)}: ${typed(question, used)},`);
  }
  const extra = new Map([...request].filter(([key]) => !OWN.includes(key)));
  const key = keyed ? 'os.environ["TYPESAFE_API_KEY"]' : '"none"';
  return [
    ...(keyed ? ["import os", ""] : []),
    `from typesafe_sdk import ${[...[...used].sort(), "TypeSafeClient"].join(", ")}`,
    "",
    `client = TypeSafeClient(api_key=${key}, base_url=${JSON.stringify(url.replace(/\/$/, ""))})`,
    "response = client.system_one(",
    `    state=${literal(request.get("state") ?? null, 4)},`,
    "    questions={",
    ...questions,
    "    },",
    ...(request.has("model") ? [`    model=${literal(request.get("model"), 4)},`] : []),
    ...(extra.size ? [`    extra_body=${literal(extra, 4)},`] : []),
    ")",
    "print(response.answers)",
  ].join("\n");
}

function typed(question, used) {
  const [name, fields] = (question instanceof Map && TYPES[question.get("type")]) || [];
  // What the client's own types do not know is sent as it stands.
  if (!name || [...question.keys()].some((key) => key !== "type" && !fields.includes(key))) return literal(question, 8);
  used.add(name);
  const given = fields.filter((field) => question.has(field));
  const flat = `${name}(${given.map((field) => `${field}=${line(question.get(field), PYTHON_WORDS)}`).join(", ")})`;
  if (flat.length <= 76) return flat;
  const lines = given.map((field) => `            ${field}=${literal(question.get(field), 12)},`);
  return `${name}(\n${lines.join("\n")}\n        )`;
}

function literal(value, indent) {
  return write(value, PYTHON_WORDS, indent, 4);
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
