// The playground: one request, edited as JSON or as a form, asked, and shown as calls from elsewhere.
//
// The JSON text is what is sent, byte for byte; the form writes it and is rebuilt from it. An API key lives in its field
// alone: nothing is stored.

import { answerCard, faultCard, number } from "./answers.js";
import { curl, python } from "./calls.js";
import { h, tabs } from "./dom.js";
import { Form } from "./form.js";
import { JsonFault, locate, parse, write } from "./json.js";

const byId = (id) => document.getElementById(id);
const base = new URL(".", document.baseURI).href;
const json = byId("json");
const jsonNote = byId("json-note");
const key = byId("key");
const ask = byId("ask");
const results = byId("results");
const status = byId("status");
let request = new Map();
let running = null;

const form = new Form(byId("panel-form"), (edited) => {
  request = edited;
  json.value = write(edited);
  readable();
  showCalls();
});

const editors = tabs(byId("editors"), (tab) => {
  if (tab.id !== "tab-form") return true;
  if (!readJson()) return false;
  form.show(request);
  return true;
});
tabs(byId("callers"));

function readable() {
  jsonNote.textContent = "";
  json.removeAttribute("aria-invalid");
}

/** Take the JSON text as the request; false where it is none, which is said below it. */
function readJson() {
  try {
    const value = parse(json.value);
    if (!(value instanceof Map)) throw new JsonFault("a request is an object with state and questions", json.value, 0);
    request = value;
    readable();
    return true;
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    jsonNote.textContent = `This is not JSON: ${fault}.`;
    json.setAttribute("aria-invalid", "true");
    return false;
  }
}

function showCalls() {
  const keyed = key.value !== "";
  byId("curl").textContent = curl(json.value, base, keyed);
  byId("python").textContent = python(request, base, keyed);
}

function load(value) {
  request = value;
  json.value = write(value);
  readable();
  form.show(value);
  showCalls();
}

json.addEventListener("input", () => {
  if (readJson()) showCalls();
});
key.addEventListener("input", showCalls);

// Asking

async function send() {
  if (running) {
    running.abort();
    return;
  }
  if (!readJson()) {
    editors.select(byId("tab-json"));
    json.focus();
    return;
  }
  if (!byId("panel-form").hidden && form.faulty) {
    form.faulty.closest("details")?.setAttribute("open", "");
    form.faulty.focus();
    return;
  }
  running = new AbortController();
  ask.textContent = "Cancel";
  results.setAttribute("aria-busy", "true");
  status.textContent = "Asking …";
  try {
    await exchange(running.signal);
  } catch (fault) {
    if (fault.name === "AbortError") status.textContent = "Cancelled.";
    else showFault("", `The server could not be reached (${fault.message}).`, null);
  } finally {
    running = null;
    ask.textContent = "Ask";
    results.removeAttribute("aria-busy");
  }
}

async function exchange(signal) {
  const headers = { "Content-Type": "application/json" };
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  const began = performance.now();
  const response = await fetch(`${base}v1/systemone`, { method: "POST", headers, body: json.value, signal });
  const text = await response.text();
  const ms = performance.now() - began;
  let body = text;
  try {
    body = parse(text);
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
  }
  if (response.ok && body instanceof Map) showAnswers(body, ms, response.headers.get("x-typesafe-request-id"));
  else showFault(String(response.status), body, response.headers.get("retry-after"));
}

function showAnswers(body, ms, requestId) {
  const answers = [...body.get("answers")];
  const usage = body.get("usage") ?? new Map();
  const facts = [
    ["round trip", `${ms < 100 ? ms.toFixed(1) : ms.toFixed(0)} ms`],
    ["input tokens", grouped(usage.get("input_tokens"))],
    ["output tokens", grouped(usage.get("output_tokens"))],
    ["model", body.get("model")],
    ["request id", requestId ?? "none"],
  ];
  const rows = facts.map(([name, value]) =>
    h("div", {}, h("dt", { textContent: name }), h("dd", { textContent: value })),
  );
  const raw = h(
    "details",
    { className: "raw" },
    h("summary", { textContent: "Response as JSON" }),
    h("pre", { tabIndex: 0, textContent: write(body), "aria-label": "Response" }),
  );
  results.replaceChildren(h("dl", { className: "facts" }, ...rows), ...answers.map(([id, each]) => answerCard(id, each)), raw);
  status.textContent = `${answers.length} ${answers.length === 1 ? "answer" : "answers"} in ${facts[0][1]}.`;
  intoView();
}

function showFault(code, body, retryAfter) {
  results.replaceChildren(faultCard(code, body, retryAfter, showPlace));
  status.textContent = code ? "The request was refused." : "The request failed.";
  intoView();
}

function grouped(numeral) {
  return numeral === undefined ? "–" : number(numeral).toLocaleString("en");
}

/** Where the page has one column, the answers may stand below the screen. */
function intoView() {
  const { top } = byId("answers").getBoundingClientRect();
  if (top > innerHeight * 0.7) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    byId("answers").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }
}

/** Show the place that an error names, in whichever editor is open. */
function showPlace(path) {
  if (byId("panel-json").hidden) {
    form.reveal(path);
    return;
  }
  const place = locate(json.value, path);
  json.focus();
  if (place) json.setSelectionRange(...place);
}

byId("request").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (!running) send();
  }
});

// Copying

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = byId(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      byId("copied").textContent = "Copied.";
    } catch {
      // A page that is not on this machine and not encrypted may not write to the clipboard.
      getSelection().selectAllChildren(source);
      byId("copied").textContent = "Selected; press Ctrl+C to copy.";
    }
  });
}

// Examples

const picker = byId("example");
const response = await fetch(new URL("examples.json", import.meta.url));
const examples = parse(await response.text());
for (const name of examples.keys()) picker.append(new Option(name, name));
picker.addEventListener("change", () => load(examples.get(picker.value)));
load(examples.get(picker.value));
document.documentElement.dataset.ready = "";
