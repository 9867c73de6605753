// The request as a form. It edits what it knows and keeps the rest: fields it has no control for, and content that is
// JSON where it could only show text, stay as they are.

import { fresh, h } from "./dom.js";
import { JsonFault, line, Numeral, parse, write } from "./json.js";

const KINDS = { noul: "yes / no", choice: "choice", score: "score" };
const MOST_OPEN = 3;
const MOST_LEVELS = 10;
const EMPTY = {
  noul: () => new Map([["type", "noul"], ["instructions", ""]]),
  choice: () => new Map([["type", "choice"], ["instructions", ""], ["criteria", new Map([["yes", null], ["no", null]])]]),
  score: () => new Map([["type", "score"], ["instructions", ""], ["criteria", ["low", "high"]]]),
};

export class Form {
  /** `root` is the form's panel; `changed(request)` is told of every edit that makes a request. */
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.list = this.part("questions");
    this.state = this.part("state");
    this.state.addEventListener("input", () => this.readState());
    for (const radio of this.radios()) radio.addEventListener("change", () => this.readState());
    for (const button of root.querySelectorAll("[data-add]")) {
      button.addEventListener("click", () => this.add(button.dataset.add));
    }
    for (const name of ["model", "independent", "layout", "error_rate"]) {
      this.part(name).addEventListener("input", () => this.readOption(name));
    }
  }

  /** Rebuild everything for `request`, a Map. */
  show(request) {
    this.base = request;
    const state = request.get("state") ?? "";
    const text = typeof state === "string";
    for (const radio of this.radios()) radio.checked = radio.value === (text ? "text" : "json");
    this.state.value = text ? state : write(state);
    flag(this.state, this.part("state-note"), "");
    const questions = request.get("questions");
    this.entries = questions instanceof Map ? [...questions].map(([id, question]) => ({ id, question })) : [];
    this.list.replaceChildren(...this.entries.map((entry) => this.card(entry, this.entries.length <= MOST_OPEN)));
    this.part("model").value = typeof request.get("model") === "string" ? request.get("model") : "";
    this.part("independent").checked = request.get("independent") !== false;
    this.part("layout").value = request.get("layout") ?? "";
    const rate = request.get("error_rate");
    this.part("error_rate").value = rate instanceof Numeral ? rate.text : "";
  }

  /** The first field that holds no value yet, or null. */
  get faulty() {
    return this.root.querySelector('[aria-invalid="true"]');
  }

  /** Show the question `id`, or what stands at the front of `path`. */
  reveal(path) {
    const at = path[0] === "questions" ? this.entries.findIndex(({ id }) => id === path[1]) : -1;
    const card = this.list.children[at];
    if (card) card.open = true;
    const options = { model: "model", layout: "layout", error_rate: "error_rate", independent: "independent" };
    const target = card?.querySelector("input, textarea, select, summary") ?? this.part(options[path[0]] ?? "state");
    target.closest("details")?.setAttribute("open", "");
    target.focus();
    target.scrollIntoView({ block: "center" });
  }

  radios() {
    return this.root.querySelectorAll('input[name="state-kind"]');
  }

  readState() {
    const json = [...this.radios()].find((radio) => radio.checked).value === "json";
    const note = this.part("state-note");
    let value = this.state.value;
    flag(this.state, note, "");
    if (json) {
      try {
        value = parse(value);
        if (!(value instanceof Map || Array.isArray(value) || typeof value === "string")) {
          flag(this.state, note, "A state is a text, an object or an array.");
          return;
        }
      } catch (fault) {
        if (!(fault instanceof JsonFault)) throw fault;
        flag(this.state, note, `This is not JSON: ${fault}.`);
        return;
      }
    }
    this.base = new Map(this.base).set("state", value);
    this.tell();
  }

  readOption(name) {
    const control = this.part(name);
    const base = new Map(this.base);
    const value = name === "independent" ? control.checked : control.value.trim();
    flag(control, this.part("options-note"), "");
    if (name === "error_rate" && value !== "") {
      if (!(Number(value) > 0 && Number(value) < 1)) {
        flag(control, this.part("options-note"), "An error rate is a number above 0 and below 1, such as 0.05.");
        return;
      }
      base.set(name, new Numeral(String(Number(value))));
    } else if (value === "" || value === true) base.delete(name);
    else base.set(name, value);
    this.base = base;
    this.tell();
  }

  tell() {
    const questions = new Map(this.entries.map(({ id, question }) => [id, question]));
    this.base = new Map(this.base).set("questions", questions);
    this.changed(this.base);
  }

  add(kind) {
    let place = this.entries.length + 1;
    while (this.entries.some(({ id }) => id === `question ${place}`)) place += 1;
    const entry = { id: `question ${place}`, question: EMPTY[kind]() };
    this.entries.push(entry);
    const card = this.card(entry, true);
    this.list.append(card);
    this.tell();
    card.querySelector("textarea").focus();
  }

  remove(entry, card) {
    const next = card.nextElementSibling ?? card.previousElementSibling;
    this.entries.splice(this.entries.indexOf(entry), 1);
    card.remove();
    this.tell();
    (next?.querySelector("summary") ?? this.root.querySelector("[data-add]")).focus();
  }

  rename(entry, id, input, note) {
    if (this.entries.some((other) => other !== entry && other.id === id)) {
      flag(input, note, "Another question has this id.");
      return false;
    }
    flag(input, note, "");
    entry.id = id;
    this.tell();
    return true;
  }

  card(entry, open) {
    const title = h("span", { className: "id", textContent: entry.id });
    const kind = h("span", { className: "kind", textContent: kindOf(entry.question) });
    const body = h("div", { className: "card-body" });
    const card = h("details", { className: "card", open }, h("summary", {}, title, kind), body);
    const fill = () => {
      kind.textContent = kindOf(entry.question);
      body.replaceChildren(...this.fields(entry, card, title, fill));
    };
    fill();
    return card;
  }

  fields(entry, card, title, refill) {
    const note = h("p", { className: "field-note", id: fresh("note"), role: "alert" });
    const id = h("input", { value: entry.id, spellcheck: false, autocomplete: "off" });
    id.addEventListener("input", () => {
      if (this.rename(entry, id.value, id, note)) title.textContent = id.value;
    });
    const remove = h("button", {
      type: "button",
      className: "quiet",
      textContent: "Remove question",
      onclick: () => this.remove(entry, card),
    });
    const { question } = entry;
    const type = question instanceof Map ? normal(question.get("type")) : null;
    if (type === null) {
      const only = h("p", { className: "note", textContent: "This question can be edited on the JSON tab alone." });
      return [labelled("Id", id), only, note, remove];
    }
    const select = h("select", {}, ...Object.entries(KINDS).map(([value, name]) => new Option(name, value)));
    select.value = type;
    select.addEventListener("change", () => {
      entry.question = converted(question, select.value);
      this.tell();
      refill();
      card.querySelector("select").focus();
    });
    const asked = question.has("question") ? "question" : "instructions";
    const instructions = this.text(question, asked, h("textarea", { rows: 2 }));
    return [
      h("div", { className: "pair" }, labelled("Id", id), labelled("Type", select)),
      labelled("Question", instructions),
      ...this.criteria(type, question, note, refill, card),
      note,
      remove,
    ];
  }

  /** `control` edits the text under `key` of `map`, then calls `edited`; other content it only shows. */
  text(map, key, control, edited = () => {}) {
    const value = map.get(key) ?? "";
    control.value = typeof value === "string" ? value : line(value);
    if (typeof value !== "string") return locked(control);
    control.addEventListener("input", () => {
      if (control.value === "") map.delete(key);
      else map.set(key, control.value);
      edited();
      this.tell();
    });
    return control;
  }

  criteria(type, question, note, refill, card) {
    if (type === "noul") return this.sides(question);
    const key = question.has("options") ? "options" : "criteria";
    const given = question.get(key) ?? [];
    if (type === "choice") {
      const named = Array.isArray(given) ? given.map((name) => [name, null]) : [...given];
      return this.rows(named, { what: "option", named: true, note, refill, card }, (rows) => {
        question.set(key, new Map(rows));
      });
    }
    if (!Array.isArray(given)) {
      return [h("p", { className: "note", textContent: "These levels can be edited on the JSON tab alone." })];
    }
    const levels = given.map((level, place) => [String(place), level]);
    return this.rows(levels, { what: "level", named: false, note, refill, card }, (rows) => {
      question.set(key, rows.map(([, level]) => level ?? ""));
    });
  }

  sides(question) {
    const held = question.get("criteria");
    const sides = new Map(held instanceof Map ? held : []);
    const wrapped = [["true", "Yes means (optional)"], ["false", "No means (optional)"]].map(([side, name]) => {
      const control = h("input", { autocomplete: "off" });
      this.text(sides, side, control, () => {
        if (sides.size) question.set("criteria", sides);
        else question.delete("criteria");
      });
      return labelled(name, control);
    });
    return [h("div", { className: "pair" }, ...wrapped)];
  }

  /** `rows` of [name, description], one line each; `store` takes them after every edit. */
  rows(rows, { what, named, note, refill, card }, store) {
    const commit = () => {
      store(rows);
      this.tell();
    };
    const lines = rows.map((row, place) => {
      const numbered = named ? `${place + 1}` : `${place}`;
      const name = named
        ? h("input", { value: row[0], "aria-label": `Name of option ${numbered}`, autocomplete: "off", spellcheck: false })
        : h("span", { className: "mark", textContent: numbered });
      if (named) {
        name.addEventListener("input", () => {
          if (rows.some((other) => other !== row && other[0] === name.value)) {
            flag(name, note, "Another option has this name.");
            return;
          }
          flag(name, note, "");
          row[0] = name.value;
          commit();
        });
      }
      const plain = typeof row[1] === "string" || row[1] === null;
      const description = h("input", {
        value: plain ? row[1] ?? "" : line(row[1]),
        placeholder: named ? "description (optional)" : "",
        "aria-label": named ? `Description of option ${numbered}` : `Level ${numbered}`,
        autocomplete: "off",
      });
      if (!plain) locked(description);
      description.addEventListener("input", () => {
        row[1] = description.value === "" && named ? null : description.value;
        commit();
      });
      const remove = h("button", {
        type: "button",
        className: "icon",
        textContent: "×",
        "aria-label": `Remove ${what} ${numbered}`,
        onclick: () => {
          rows.splice(place, 1);
          commit();
          refill();
          card.querySelector(`[data-rows] .quiet`).focus();
        },
      });
      return h("li", { className: named ? "row named" : "row" }, name, description, remove);
    });
    const add = h("button", {
      type: "button",
      className: "quiet",
      textContent: `Add ${what}`,
      disabled: !named && rows.length >= MOST_LEVELS,
      onclick: () => {
        let place = rows.length + 1;
        while (rows.some(([name]) => name === `option ${place}`)) place += 1;
        rows.push([named ? `option ${place}` : "", named ? null : ""]);
        commit();
        refill();
        const inputs = card.querySelectorAll("[data-rows] li:last-child input");
        inputs[0].focus();
        inputs[0].select();
      },
    });
    const group = h(
      "div",
      { role: "group", "aria-label": named ? "Options" : "Levels, lowest first", "data-rows": "" },
      h("span", { className: "label", textContent: named ? "Options" : "Levels, lowest first" }),
      h("ul", { role: "list" }, ...lines),
      add,
    );
    return [group];
  }
}

function kindOf(question) {
  const type = question instanceof Map ? normal(question.get("type")) : null;
  return type === null ? "JSON" : KINDS[type];
}

function normal(type) {
  if (type === "bool") return "noul";
  return Object.hasOwn(KINDS, type) ? type : null;
}

/** `question` as another type, with its text and, where they have a place there, its options. */
function converted(question, type) {
  const made = EMPTY[type]();
  const instructions = question.get("instructions") ?? question.get("question");
  if (instructions !== undefined) made.set("instructions", instructions);
  const held = question.get("criteria") ?? question.get("options");
  if (type === "choice" && Array.isArray(held)) {
    const names = held.filter((name) => typeof name === "string" && name !== "");
    if (names.length) made.set("criteria", new Map(names.map((name) => [name, null])));
  }
  if (type === "score" && held instanceof Map && held.size >= 2 && held.size <= MOST_LEVELS) {
    made.set("criteria", [...held].map(([name, description]) => description ?? name));
  }
  return made;
}

function labelled(name, control) {
  control.id ||= fresh("field");
  return h("div", { className: "field" }, h("label", { for: control.id, textContent: name }), control);
}

function locked(control) {
  control.readOnly = true;
  control.title = "This is JSON; edit it on the JSON tab.";
  return control;
}

function flag(control, note, message) {
  note.textContent = message;
  if (message) {
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-describedby", note.id);
  } else {
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-describedby");
  }
}
