// Builds elements. Text always becomes a text node, so that no name from the cluster is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. `props` are attributes; `on` has its listeners, and `vars` its CSS variables. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Return an SVG element. */
export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) element.style.setProperty(`--${key}`, text);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

/** Replace the content of an element, and keep the keyboard's focus on the element with the same id. */
export function fill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const id = focused?.id;
  const at = focused?.selectionStart ?? null;
  element.replaceChildren();
  append(element, children);
  if (id) {
    const again = document.getElementById(id);
    if (again && again !== document.activeElement) {
      again.focus({ preventScroll: true });
      if (at !== null && again.setSelectionRange && again.type !== "range") again.setSelectionRange(at, at);
    }
  }
  return element;
}

/** Replace the content of an element unless it was made from the same values before. */
export function renew(element, from, make) {
  const known = JSON.stringify(from);
  if (element.madeFrom === known) return;
  element.madeFrom = known;
  fill(element, make());
}

/** Make these the children of an element, in their order. Those that are there already stay where they are. */
export function arrange(element, children) {
  children.forEach((child, at) => {
    if (element.children[at] !== child) element.insertBefore(child, element.children[at] ?? null);
  });
  while (element.children.length > children.length) element.lastChild.remove();
}

/** Return a button that copies a command line, which it shows. */
export function copyButton(command, id = null) {
  const said = h("span", { class: "copied", "aria-hidden": "true" }, "Copy");
  const copy = () => navigator.clipboard?.writeText(command).then(
    () => { said.textContent = "Copied"; announce("Copied."); },
    () => announce("The browser does not allow copying."));
  return h("button", { type: "button", class: "copy", title: "Copy this command", on: { click: copy } }, h("code", { id }, command), said);
}

/** Tell screen readers something once. */
export function announce(text) {
  const element = document.getElementById("announcer");
  if (element) element.textContent = text;
}
