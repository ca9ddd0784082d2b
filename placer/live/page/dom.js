// Makes elements. What always holds: a text from outside becomes a text node, never HTML.

/** An element with a class, attributes, and children: elements, texts, or null for none. */
export function make(tag, { class: name, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set a text, if it differs: an equal text costs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set a length in the page's styles, if it differs. */
export function setStyle(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

export const byId = (id) => document.getElementById(id);
