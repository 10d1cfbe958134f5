"use strict";
// What all pages use: elements, and numbers for people.

const SVG = "http://www.w3.org/2000/svg";

// Text of models and boards gets into the page through here, and only as text.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function show(id, ...children) {
  document.getElementById(id).replaceChildren(...children);
}

function digits(value) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(3, Math.max(0, 2 - size)));
}

function time(us) {
  if (us === null || us === undefined) return "–";
  return us < 1000 ? `${digits(us)} µs` : `${digits(us / 1000)} ms`;
}

function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function heading(...columns) {
  const cells = columns.map(([text, kind]) => make("th", { scope: "col", class: kind }, text));
  return make("thead", {}, make("tr", {}, ...cells));
}
