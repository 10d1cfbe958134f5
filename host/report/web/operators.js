// A row for each operator, with its bar; opened, how its kernel was chosen.

const MOST_ROWS = 15;

function showOperators() {
  const { operators } = release();
  const total = totalTime();
  const rows = operators.map((operator, index) => ({ operator, index, us: took(operator, index) }));
  const wanted = rows.filter(({ operator }) => matches(operator));
  const slowest = chosen.order === "time";
  if (slowest) wanted.sort((a, b) => (b.us || 0) - (a.us || 0));
  const cut = slowest && !chosen.all && wanted.length > MOST_ROWS + 3;
  const listed = wanted.filter(({ index }, place) => !cut || place < MOST_ROWS || index === chosen.operator);
  const ends = wanted.map(({ operator, us }) => Math.max(us || 0, spreadOf(operator)?.[1] ?? 0));
  const most = Math.max(...ends, 1e-9);
  const expected = isMeasured() && operators.some((o) => o.estimate_us !== null);
  const columns = [["Operator", "text"], ["", "bar"], [timeTitle(), ""], ["Share", "roomy"]];
  if (expected) columns.push(["Estimate", "roomy"], ["Ratio", "roomy"]);
  const body = make("tbody");
  for (const row of listed) body.append(...operatorRows(row, most, total, expected, columns.length));
  const caption = make("caption", { class: "skip" }, "What each operator takes");
  show("operator-table", caption, heading(...columns), body);
  if (!wanted.length) {
    body.append(make("tr", {}, make("td", { class: "text", colspan: columns.length }, "No operator is like that.")));
  }
  const more = moreButton(cut, wanted.length);
  show("operator-more", ...(more ? [more] : []));
  const share = total ? wanted.reduce((sum, { us }) => sum + (us || 0), 0) / total : 0;
  show("status", `${wanted.length} of ${count(operators.length, "operator", "operators")}, ${percent(share)} of the time`);
}

function moreButton(cut, number) {
  if (!cut && !(chosen.all && number > MOST_ROWS + 3 && chosen.order === "time")) return null;
  const text = cut ? `Show all ${number} operators` : `Show the ${MOST_ROWS} slowest`;
  const press = () => choose({ all: cut }, "table");
  return make("button", { class: "plain more", type: "button", "data-more": "", onclick: press }, text);
}

function timeTitle() {
  if (!isMeasured()) return "Estimate";
  return report.emulated ? "Emulated" : "Median";
}

// The times over boards and batches; what one board took has no such spread here.
function spreadOf(operator) {
  const times = operator.times;
  return board() || !times || times.p90 <= times.p10 ? null : [times.p10, times.p90];
}

function operatorRows({ operator, index, us }, most, total, expected, width) {
  const open = index === chosen.operator;
  const id = `detail-${index}`;
  const button = make(
    "button",
    {
      class: "plain",
      type: "button",
      "aria-expanded": String(open),
      "aria-controls": id,
      "data-operator": index,
      onclick: () => choose({ operator: open ? -1 : index }, "table"),
    },
    operator.name,
    operator.name.includes(operator.op) ? null : make("small", {}, operator.op),
  );
  const cells = [
    make("th", { scope: "row" }, button),
    make("td", { class: "bar" }, track(most, { fill: us || 0, range: spreadOf(operator) })),
    make("td", { class: "number" }, time(us)),
    make("td", { class: "number roomy" }, us === null || !total ? "–" : percent(us / total)),
  ];
  if (expected) {
    const known = us !== null && operator.estimate_us;
    cells.push(make("td", { class: "number roomy" }, time(operator.estimate_us)));
    cells.push(make("td", { class: "number roomy" }, known ? `${(us / operator.estimate_us).toFixed(2)}×` : "–"));
  }
  const detail = make("td", { colspan: width }, open ? details(operator, us) : null);
  return [
    make("tr", { class: open ? "chosen" : null }, ...cells),
    make("tr", { class: "detail", id, hidden: !open }, detail),
  ];
}

function details(operator, us) {
  const times = operator.times;
  const spread = times && times.p90 > times.p10 ? `${time(times.p10)} to ${time(times.p90)} (p10, p90)` : null;
  const facts = [
    ["Kind", operator.op],
    ["Kernel", operator.kernel],
    ["Method", operator.method],
    ["Rule", operator.rule && `${operator.rule}: ${operator.why}`],
    ["Runner-up", operator.runner_up],
    ["Members", operator.members.join("; ")],
    ["Measured", isMeasured() && us !== null ? time(us) : null],
    ["Spread", spread],
    ["Estimate", operator.estimate_us === null ? null : `${time(operator.estimate_us)}, ${release().estimated_by}`],
    ["Samples", operator.samples ? operator.samples.toLocaleString("en") : null],
    ["Unit", operator.unit && operator.unit !== "cpu" ? operator.unit : null],
    ["NNA", operator.nna],
    ["Bytes", operator.bytes ? `${operator.bytes.toLocaleString("en")} read and written` : null],
    ["", release().explained ? null : "How it was decided is known only where the release was compiled."],
  ];
  const shown = facts.filter(([, value]) => value);
  return make("dl", {}, ...shown.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}
