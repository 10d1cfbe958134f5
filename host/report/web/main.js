// Filters and the head of the page; every choice redraws it.

const KINDS = { field: "field report", bench: "benchmark", compile: "compilation, times estimated" };
const THREADS = (one) => count(one.threads, "thread", "threads");

function option(value, text, selected) {
  return make("option", { value, selected }, text);
}

function selectOf(name, label, options, current) {
  const listen = (event) => pick(name, event.target.value);
  const select = make("select", { name, onchange: listen });
  select.append(...options.map(([value, text]) => option(value, text, String(value) === String(current))));
  return make("label", { hidden: options.length < 2 }, label, select);
}

function subjectName(one) {
  const others = report.subjects.filter((each) => each.model === one.model && each.board_type === one.board_type);
  const threads = others.some((each) => each.threads !== one.threads) ? `, ${THREADS(one)}` : "";
  const alike = others.filter((each) => each.signature === one.signature);
  const shapes = alike.some((each) => each.variant !== one.variant) ? `, shapes ${one.variant + 1}` : "";
  return `${one.board_type}${threads}${one.signature && `, ${one.signature}`}${shapes}`;
}

function showFilters() {
  const models = [...new Set(report.subjects.map((one) => one.model))];
  const types = report.subjects.map((one, number) => [number, one]).filter(([, one]) => one.model === subject().model);
  const { releases } = subject();
  const { boards, operators } = release();
  const kinds = [...new Set(operators.map((o) => o.op))].sort();
  const shown = boards.filter((one) => one.operators.length || one.board === chosen.board).map((one) => one.board).sort();
  const search = make("input", {
    type: "search",
    name: "text",
    value: chosen.text,
    placeholder: "name or kernel",
    oninput: (event) => choose({ text: event.target.value }, "filters"),
  });
  show(
    "filters",
    selectOf("model", "Model", models.map((name) => [name, name]), subject().model),
    selectOf("subject", "Board type", types.map(([number, one]) => [number, subjectName(one)]), chosen.subject),
    selectOf("release", "Release", releases.map((one, number) => [number, releaseName(one, number)]).reverse(), chosen.release),
    selectOf("board", "Board", report.source === "field" ? [["", "all boards"], ...shown.map((name) => [name, name])] : [], chosen.board),
    selectOf("kind", "Kind", [["", "all kinds"], ...kinds.map((kind) => [kind, kind])], chosen.kind),
    selectOf("order", "Order", [["time", "slowest first"], ["running", "as they run"]], chosen.order),
    make("label", {}, "Search", search),
  );
}

function releaseName(one, number) {
  return `${one.release.slice(0, 8)}${number === subject().releases.length - 1 ? " (newest)" : ""}`;
}

function pick(name, value) {
  if (name === "model") pick("subject", report.subjects.findIndex((one) => one.model === value));
  else if (name === "subject") choose({ subject: Number(value), release: report.subjects[value].releases.length - 1, board: "", operator: -1 });
  else if (name === "release") choose({ release: Number(value) });
  else choose({ [name]: value });
}

function showHead() {
  const one = subject();
  document.getElementById("kind").textContent = KINDS[report.source];
  document.getElementById("model").textContent = one.model;
  document.title = `${one.model} – edgekit ${KINDS[report.source]}`;
  show("subtitle", `${one.board_type}, ${THREADS(one)}, release ${release().release}`);
}

function showFigures() {
  const here = release();
  const times = whole();
  const title = report.emulated ? "Inference, emulated" : chosen.board ? `Inference on ${chosen.board}` : "Inference, median";
  const known = board() || here;
  const figures = [
    times && [title, time(times.median), `p10 ${time(times.p10)}, p90 ${time(times.p90)}`],
    here.estimate_us !== null && ["Estimate", time(here.estimate_us), here.estimated_by],
    times && here.estimate_us && !report.emulated && ["Measured to estimate", `${(times.median / here.estimate_us).toFixed(2)}×`, ""],
    report.source === "field" && ["Boards", here.board_count.toLocaleString("en"), count(here.batches, "batch", "batches")],
    known.inferences && [report.source === "field" ? "Inferences" : "Runs", known.inferences.toLocaleString("en"), ""],
    known.throttled !== null && known.throttled !== undefined && ["Throttled", percent(known.throttled), "of the batches"],
    here.memory.arena !== undefined && ["Arena", bytes(here.memory.arena), `weights ${bytes(here.memory.weights)}`],
  ];
  show("figures", ...figures.filter(Boolean).map(figure));
  show("note", here.note || "");
  show("nna", ...here.nna.map((line) => make("li", {}, line)));
  document.getElementById("nna-account").hidden = !here.nna.length;
  show("hotspots", ...here.hotspots.map((line) => make("li", {}, line)));
  document.getElementById("hotspots-account").hidden = !here.hotspots.length;
}

function figure([name, value, more]) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, more ? make("small", {}, more) : null));
}

function bytes(number) {
  if (number < 1 << 20) return `${digits(number / 1024)} KiB`;
  return `${digits(number / (1 << 20))} MiB`;
}

function showFooter() {
  const out = report.left_out.length ? ` Without ${report.left_out.join(", ")}.` : "";
  const over = report.source === "field" ? "Times are medians over batches; each batch is some minutes of one board. " : "";
  show("footer", make("p", {}, `${over}Made ${report.made} UTC by edgekit ${report.kit}.${out}`));
}

// `from` is the part of the page whose control was used: it keeps the focus.
function choose(change, from) {
  Object.assign(chosen, change);
  const { operators, boards } = release();
  if (!boards.some((one) => one.board === chosen.board)) chosen.board = "";
  if (!operators.some((o) => o.op === chosen.kind)) chosen.kind = "";
  if (chosen.operator >= operators.length) chosen.operator = -1;
  const focused = focusKey();
  if (from !== "filters") showFilters();
  showHead();
  showFigures();
  showOperators();
  showGraph();
  showBoards();
  showTrend();
  restoreFocus(focused);
  if (from === "graph") document.querySelector("tr.chosen")?.scrollIntoView({ block: "nearest" });
}

function focusKey() {
  const here = document.activeElement;
  if (!here || here === document.body) return null;
  if (here.name) return `[name="${here.name}"]`;
  const inside = here.closest("#graph, #operators, #boards, #trend");
  const data = Object.entries(here.dataset)[0];
  return inside && data ? `#${inside.id} [data-${data[0]}="${CSS.escape(data[1])}"]` : null;
}

function restoreFocus(key) {
  if (key && !document.activeElement?.matches(key)) document.querySelector(key)?.focus({ preventScroll: true });
}

