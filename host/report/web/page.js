// What all parts of the report use: its data, figures for people, and what is chosen.

const report = JSON.parse(document.getElementById("data").textContent);

function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;
}

function change(ratio) {
  const grown = 100 * (ratio - 1);
  return `${grown < 0 ? "−" : "+"}${Math.abs(grown).toFixed(1)}%`;
}

function day(seconds) {
  return seconds === null ? "–" : new Date(1000 * seconds).toISOString().slice(0, 10);
}

// A bar on a scale of 0 to `most`: a filled one, a range across it, and marks.
function track(most, { fill: to, range, wide, marks = [] }) {
  const at = (value) => `${Math.min(100, (100 * value) / (most || 1))}%`;
  const piece = (kind, [low, high]) => make("div", { class: kind, "--from": at(low), "--to": at(high) });
  return make(
    "div",
    { class: "track", "aria-hidden": "true" },
    to === undefined ? null : piece("fill", [0, to]),
    wide ? piece("wide", wide) : null,
    range && range[1] > range[0] ? piece("range", range) : null,
    ...marks.map(([value, kind]) => make("div", { class: `mark ${kind}`, "--from": at(value) })),
  );
}

// What is chosen. `subject` and `release` are numbers, `board` a name or "".
const chosen = { subject: 0, release: 0, board: "", kind: "", text: "", order: "time", all: false, operator: -1 };

function subject() {
  return report.subjects[chosen.subject];
}

function release() {
  return subject().releases[chosen.release];
}

function board() {
  return release().boards.find((one) => one.board === chosen.board);
}

// Microseconds of an operator: on the chosen board, over all boards, or as expected.
function took(operator, index) {
  const here = board();
  if (here && here.operators.length) return here.operators[index];
  return operator.times ? operator.times.median : operator.estimate_us;
}

function whole() {
  const here = board();
  if (here) return here.whole;
  return release().whole;
}

function totalTime() {
  return release().operators.reduce((sum, operator, i) => sum + (took(operator, i) || 0), 0);
}

function matches(operator) {
  const text = chosen.text.trim().toLowerCase();
  if (chosen.kind && operator.op !== chosen.kind) return false;
  return !text || `${operator.name} ${operator.op} ${operator.kernel}`.toLowerCase().includes(text);
}

function isMeasured() {
  return report.source !== "compile";
}
