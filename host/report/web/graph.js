// The model's graph, each operator colored by the time it takes.

const NODE = { width: 172, height: 30, across: 24, down: 20 };

function showGraph() {
  const { operators, edges } = release();
  const total = totalTime();
  const most = Math.max(...operators.map((operator, i) => took(operator, i) || 0), 1e-9);
  const columns = Math.max(0, ...operators.map((o) => o.column)) + 1;
  const rows = Math.max(0, ...operators.map((o) => o.row)) + 1;
  const width = columns * (NODE.width + NODE.across) + NODE.across;
  const height = rows * (NODE.height + NODE.down);
  const drawing = draw(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group" },
    ...edges.map(([from, to]) => draw("path", { class: "edge", d: edgePath(operators[from], operators[to]) })),
    ...operators.map((operator, i) => node(operator, i, most, total)),
  );
  drawing.setAttribute("aria-label", "Operators in running order; arrow keys go from one to the next");
  drawing.addEventListener("keydown", moveInGraph);
  show("drawing", drawing);
  show("scale", "0", make("span", { class: "ramp" }), time(most));
}

function place(operator) {
  return {
    x: NODE.across / 2 + operator.column * (NODE.width + NODE.across),
    y: NODE.down / 2 + operator.row * (NODE.height + NODE.down),
  };
}

// Straight down where that is free; around the operators between where it is not.
function edgePath(from, to) {
  const start = place(from);
  const end = place(to);
  if (from.column === to.column && to.row > from.row + 1) {
    const right = start.x + NODE.width;
    const out = right + NODE.across - 4;
    const [top, bottom] = [start.y + NODE.height - 8, end.y + 8];
    return `M${right} ${top} C${out} ${top + 4} ${out} ${bottom - 4} ${right} ${bottom}`;
  }
  const [x, X] = [start.x + NODE.width / 2, end.x + NODE.width / 2];
  const [y, Y] = [start.y + NODE.height, end.y];
  return `M${x} ${y} C${x} ${y + NODE.down} ${X} ${Y - NODE.down} ${X} ${Y}`;
}

function node(operator, index, most, total) {
  const us = took(operator, index);
  const { x, y } = place(operator);
  const share = us === null || !total ? "" : `, ${percent(us / total)}`;
  const label = `${operator.name}, ${operator.op}, ${time(us)}${share}`;
  const classes = ["node"];
  if (!matches(operator)) classes.push("faint");
  if (index === chosen.operator) classes.push("chosen");
  return draw(
    "g",
    {
      class: classes.join(" "),
      role: "button",
      tabindex: index === Math.max(0, chosen.operator) ? 0 : -1,
      "aria-label": label,
      "aria-pressed": String(index === chosen.operator),
      "data-operator": index,
      "--heat": us === null ? 0 : (us / most).toFixed(3),
      onclick: () => choose({ operator: index }, "graph"),
    },
    draw("title", {}, label),
    draw("rect", { x, y, width: NODE.width, height: NODE.height, rx: 5 }),
    draw("text", { x: x + 8, y: y + 19 }, short(operator.name)),
    draw("text", { x: x + NODE.width - 8, y: y + 19, class: "time" }, time(us)),
  );
}

function short(name) {
  return name.length > 16 ? `…${name.slice(-15)}` : name;
}

function moveInGraph(event) {
  const at = Number(event.target.closest(".node")?.dataset.operator ?? -1);
  const last = release().operators.length - 1;
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
  if (next !== undefined) {
    event.preventDefault();
    focusNode(Math.min(last, Math.max(0, next)));
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose({ operator: at }, "graph");
    focusNode(at);
  }
}

function focusNode(index) {
  for (const one of document.querySelectorAll(".node")) {
    const here = Number(one.dataset.operator) === index;
    one.setAttribute("tabindex", here ? 0 : -1);
    if (here) one.focus();
  }
}
