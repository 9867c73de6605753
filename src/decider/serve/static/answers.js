// Answers and errors of the server, as elements.

import { h } from "./dom.js";
import { line, Numeral } from "./json.js";

const MOST_BARS = 12;
const TYPE_NAMES = { choice: "choice", score: "score", noul: "yes / no" };

/** One answer: the verdict, a bar an option, and the fields beyond the documented ones. */
export function answerCard(id, answer) {
  const { verdict, beside, bars } = read(answer);
  const shown = bars.slice(0, MOST_BARS).map(bar);
  const rest = bars.slice(MOST_BARS).map(bar);
  return h(
    "article",
    { className: "answer" },
    h(
      "header",
      {},
      h("h3", { textContent: id }),
      h("span", { className: "kind", textContent: TYPE_NAMES[answer.get("type")] ?? line(answer.get("type") ?? null) }),
    ),
    h(
      "p",
      { className: "verdict" },
      h("strong", { textContent: verdict }),
      h("span", { className: "beside", textContent: beside }),
    ),
    h("ul", { className: "bars", role: "list" }, ...shown),
    rest.length
      ? h(
          "details",
          { className: "rest" },
          h("summary", { textContent: `${rest.length} more` }),
          h("ul", { className: "bars", role: "list" }, ...rest),
        )
      : null,
    extras(answer),
  );
}

function read(answer) {
  const type = answer.get("type");
  const probabilities = answer.get("probabilities") ?? new Map();
  const confidence = answer.has("confidence") ? `confidence ${number(answer.get("confidence")).toFixed(3)}` : "";
  if (type === "noul") {
    const yes = number(answer.get("noul"));
    const bars = [{ name: "yes", p: yes, best: yes > 0.5 }, { name: "no", p: 1 - yes, best: yes <= 0.5 }];
    return { verdict: yes > 0.5 ? "Yes" : "No", beside: `P(yes) ${yes.toFixed(3)}`, bars };
  }
  if (type === "score") {
    const legend = answer.get("legend") ?? new Map();
    const bars = [...probabilities].map(([level, p]) => ({ name: words(legend.get(level)), mark: level, p: number(p) }));
    const most = Math.max(...bars.map((each) => each.p));
    bars.find((each) => each.p === most).best = true;
    const verdict = `${number(answer.get("score")).toFixed(2)} of ${probabilities.size - 1}`;
    return { verdict, beside: confidence, bars };
  }
  const choice = words(answer.get("choice"));
  const bars = [...probabilities].map(([name, p]) => ({ name, p: number(p), best: name === choice }));
  // Stable, so that ties stay in the order asked.
  bars.sort((a, b) => b.p - a.p);
  return { verdict: choice, beside: confidence, bars };
}

function bar({ name, mark, p, best }) {
  const fill = h("span", { className: "fill" });
  fill.style.inlineSize = `${100 * p}%`;
  return h(
    "li",
    { className: best ? "bar best" : "bar" },
    mark === undefined ? null : h("span", { className: "mark", textContent: mark }),
    h("span", { className: "name", textContent: name }),
    h("span", { className: "p", textContent: percent(p) }),
    h("span", { className: "track", "aria-hidden": "true" }, fill),
  );
}

function extras(answer) {
  const own = [...answer].filter(([key]) => key.startsWith("x_"));
  if (!own.length) return null;
  const pairs = own.map(([key, value]) => {
    const shown = value instanceof Numeral ? shortened(value) : line(value);
    return h("div", {}, h("dt", { textContent: key }), h("dd", { textContent: shown, title: line(value) }));
  });
  return h("dl", { className: "extras" }, ...pairs);
}

/** A failed call: what the server said, and where, each place a button that shows it. */
export function faultCard(status, body, retryAfter, show) {
  const faults = faultsOf(body);
  const items = faults.map(({ loc, message }) =>
    h(
      "li",
      {},
      loc.length
        ? h("button", {
            type: "button",
            className: "place",
            textContent: loc.join(" › "),
            title: "Show this place in the request",
            onclick: () => show(loc),
          })
        : null,
      h("span", { className: "message", textContent: message }),
    ),
  );
  return h(
    "div",
    { className: "fault", role: "alert" },
    h("h3", { textContent: status ? `Refused: ${status}` : "No answer" }),
    h("ul", { role: "list" }, ...items),
    retryAfter ? h("p", { className: "note", textContent: `Try again in ${retryAfter} s.` }) : null,
  );
}

function faultsOf(body) {
  const detail = body instanceof Map ? body.get("detail") : body;
  if (Array.isArray(detail)) {
    return detail.map((each) => ({
      loc: (each.get("loc") ?? []).map(words).filter((step, place) => place > 0 || step !== "body"),
      message: words(each.get("msg")),
    }));
  }
  if (detail instanceof Map) return [{ loc: [], message: words(detail.get("message") ?? detail) }];
  return [{ loc: [], message: words(detail) }];
}

export function number(numeral) {
  return Number(numeral.text);
}

function words(value) {
  return typeof value === "string" ? value : line(value ?? null);
}

function percent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(1)} %`;
}

function shortened(numeral) {
  return /^-?\d+$/.test(numeral.text) ? numeral.text : String(Number(number(numeral).toPrecision(4)));
}
