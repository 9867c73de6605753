// Elements without markup: every text goes in as text, so that no option, id or state is ever read as HTML.

/** An element; `props` are properties, or attributes where their name has a dash or is `role` or `for`. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, String(value));
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

let count = 0;

/** An id that no other element has. */
export function fresh(stem) {
  count += 1;
  return `${stem}-${count}`;
}

/** Make `list`, whose buttons control panels, a tab list: arrows, Home and End move, Tab leaves it. */
export function tabs(list, allowed = () => true) {
  const all = [...list.querySelectorAll('[role="tab"]')];
  const select = (tab) => {
    if (!allowed(tab)) return;
    for (const each of all) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) select(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const tab = all[steps[event.key] % all.length];
    select(tab);
    if (tab.getAttribute("aria-selected") === "true") tab.focus();
  });
  return { select };
}
