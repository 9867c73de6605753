// JSON that keeps what JavaScript's own objects lose: the order of keys such as "10" and "2", a key named "__proto__",
// digits of long numbers; and that refuses a key given twice, as the server does.
//
// A value is a string, true, false, null, an Array, a Map (an object) or a Numeral (a number as it is written).

export class Numeral {
  constructor(text) {
    this.text = text;
  }
}

export class JsonFault extends Error {
  constructor(message, text, offset) {
    super(message);
    const before = text.slice(0, offset).split("\n");
    this.offset = offset;
    this.line = before.length;
    this.column = before.at(-1).length + 1;
  }

  toString() {
    return `line ${this.line}, column ${this.column}: ${this.message}`;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS = [["true", true], ["false", false], ["null", null]];
const MOST_DEPTH = 200;
const MOST_WIDTH = 76;

/** The value of `text`; throws JsonFault. `found(path, start, end)` is told where each value stands. */
export function parse(text, found = () => {}) {
  let at = 0;

  function match(pattern) {
    pattern.lastIndex = at;
    const hit = pattern.exec(text);
    if (hit) at = pattern.lastIndex;
    return hit && hit[0];
  }

  function fail(message, offset = at) {
    throw new JsonFault(message, text, offset);
  }

  function take(char) {
    match(SPACE);
    if (text[at] !== char) return false;
    at += 1;
    return true;
  }

  function string(what) {
    const hit = match(STRING);
    if (hit === null) {
      fail(text[at] === '"' ? "this text is not closed, or holds a line break or a wrong escape" : `${what} is expected`);
    }
    return JSON.parse(hit);
  }

  function object(path) {
    const map = new Map();
    if (take("}")) return map;
    do {
      match(SPACE);
      const start = at;
      const key = string('a key in double quotes');
      if (map.has(key)) fail(`the key ${JSON.stringify(key)} is given twice`, start);
      if (!take(":")) fail('":" is expected after a key');
      map.set(key, value([...path, key]));
    } while (take(","));
    if (!take("}")) fail('"," or "}" is expected');
    return map;
  }

  function array(path) {
    const list = [];
    if (take("]")) return list;
    do list.push(value([...path, list.length]));
    while (take(","));
    if (!take("]")) fail('"," or "]" is expected');
    return list;
  }

  function value(path) {
    if (path.length > MOST_DEPTH) fail(`more than ${MOST_DEPTH} levels`);
    match(SPACE);
    const start = at;
    const made = bare(path);
    found(path, start, at);
    return made;
  }

  function bare(path) {
    if (text[at] === '"') return string("a text");
    if (text[at] === "{" || text[at] === "[") {
      at += 1;
      return text[at - 1] === "{" ? object(path) : array(path);
    }
    for (const [word, meaning] of WORDS) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    const digits = match(NUMBER);
    if (digits === null) fail(at < text.length ? "a value is expected" : "the text ends too early");
    return new Numeral(digits);
  }

  const whole = value([]);
  match(SPACE);
  if (at < text.length) fail("nothing more is expected");
  return whole;
}

/** Where the value at `path` stands in `text`: [start, end], of the deepest part of the path that is there. */
export function locate(text, path) {
  let best = null;
  let depth = -1;
  parse(text, (here, start, end) => {
    if (here.length > depth && here.length <= path.length && here.every((step, i) => String(step) === String(path[i]))) {
      best = [start, end];
      depth = here.length;
    }
  });
  return best;
}

const JSON_WORDS = { true: "true", false: "false", null: "null" };

/** JSON for people: `step` spaces a level, and on one line whatever has room there. */
export function write(value, words = JSON_WORDS, indent = 0, step = 2) {
  const flat = line(value, words);
  if (flat.length + indent <= MOST_WIDTH || !(value instanceof Map || Array.isArray(value))) return flat;
  const pad = " ".repeat(indent + step);
  const parts = value instanceof Map
    ? [...value].map(([key, part]) => `${pad}${JSON.stringify(key)}: ${write(part, words, indent + step, step)}`)
    : value.map((part) => pad + write(part, words, indent + step, step));
  const [open, close] = value instanceof Map ? "{}" : "[]";
  return `${open}\n${parts.join(",\n")}\n${" ".repeat(indent)}${close}`;
}

/** JSON on one line. */
export function line(value, words = JSON_WORDS) {
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof Numeral) return value.text;
  if (Array.isArray(value)) return `[${value.map((part) => line(part, words)).join(", ")}]`;
  if (value instanceof Map) {
    return `{${[...value].map(([key, part]) => `${JSON.stringify(key)}: ${line(part, words)}`).join(", ")}}`;
  }
  return words[String(value)];
}
