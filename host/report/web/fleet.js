// The spread over boards, and the trend over releases.

const MOST_BOARDS = 40;

function showBoards() {
  const { boards, board_count } = release();
  const section = document.getElementById("boards");
  section.hidden = report.source !== "field" || !boards.length;
  if (section.hidden) return;
  const most = Math.max(...boards.map((one) => one.whole.p90));
  const expected = release().estimate_us;
  const throttled = boards.some((one) => one.throttled !== null);
  const warm = boards.some((one) => one.temperature_c !== null);
  const columns = [["Board", "text"], ["", "bar"], ["Median", ""], ["p90", "roomy"], ["Batches", "roomy"]];
  if (throttled) columns.push(["Throttled", ""]);
  if (warm) columns.push(["°C", "roomy"]);
  const rows = boards.slice(0, MOST_BOARDS).map((one) => {
    const { median, p10, p90 } = one.whole;
    const marks = [[median, ""]];
    if (expected && expected <= most) marks.push([expected, "expected"]);
    return make(
      "tr",
      { class: one.board === chosen.board ? "chosen" : null },
      make("th", { scope: "row" }, boardButton(one.board)),
      make("td", { class: "bar" }, track(most, { wide: [p10, p90], marks })),
      make("td", { class: "number" }, time(median)),
      make("td", { class: "number roomy" }, time(p90)),
      make("td", { class: "number roomy" }, one.batches.toLocaleString("en")),
      throttled ? make("td", { class: "number" }, one.throttled === null ? "–" : percent(one.throttled)) : null,
      warm ? make("td", { class: "number roomy" }, one.temperature_c === null ? "–" : one.temperature_c.toFixed(0)) : null,
    );
  });
  const hidden = board_count - rows.length;
  const more = hidden > 0 ? `${count(hidden, "faster board is", "faster boards are")} not listed. ` : "";
  const note = `${more}A bar goes from p10 to p90 of an inference, the line is the median${expected && expected <= most ? ", the gray one the estimate" : ""}.`;
  show(
    "board-rows",
    make("table", {}, heading(...columns), make("tbody", {}, ...rows)),
    make("p", { class: "quiet" }, note),
  );
}

function boardButton(name) {
  const on = name === chosen.board;
  const press = () => choose({ board: on ? "" : name }, "boards");
  return make("button", { class: "plain", type: "button", "aria-pressed": String(on), "data-board": name, onclick: press }, name);
}

function showTrend() {
  const { releases } = subject();
  const section = document.getElementById("trend");
  section.hidden = report.source !== "field";
  if (section.hidden) return;
  show("trend-chart", ...(releases.length > 1 ? [trendChart(releases)] : []));
  const most = Math.max(...releases.map((one) => one.whole.p90));
  const rows = releases.map((one, number) => {
    const { median, p10, p90 } = one.whole;
    const before = number ? releases[number - 1].whole.median : 0;
    return make(
      "tr",
      { class: number === chosen.release ? "chosen" : null },
      make("th", { scope: "row" }, releaseButton(one, number)),
      make("td", { class: "bar roomy" }, track(most, { wide: [p10, p90], marks: [[median, ""]] })),
      make("td", { class: "number" }, time(median)),
      make("td", { class: "number" }, before ? change(median / before) : "–"),
      make("td", { class: "number roomy" }, one.board_count.toLocaleString("en")),
      make("td", { class: "number roomy" }, one.inferences.toLocaleString("en")),
      make("td", { class: "number roomy" }, day(one.first)),
    );
  });
  const columns = [["Release", "text"], ["", "bar roomy"], ["Median", ""], ["Change", ""]];
  columns.push(["Boards", "roomy"], ["Inferences", "roomy"], ["Since", "roomy"]);
  show("release-rows", make("table", {}, heading(...columns), make("tbody", {}, ...rows.reverse())));
}

function releaseButton(one, number) {
  const attributes = {
    class: "plain",
    type: "button",
    "aria-pressed": String(number === chosen.release),
    "data-release": number,
    onclick: () => choose({ release: number }, "trend"),
  };
  return make("button", attributes, one.release, make("small", {}, `edgekit ${one.kit}`));
}

function trendChart(releases) {
  const width = Math.max(280, document.getElementById("trend-chart").clientWidth);
  const [height, left, right, top, bottom] = [170, 64, 16, 14, 26];
  const highest = 1.08 * Math.max(...releases.map((one) => one.whole.p90));
  const x = (number) => left + (number * (width - left - right)) / (releases.length - 1);
  const y = (us) => top + (1 - us / highest) * (height - top - bottom);
  const line = (values) => values.map(([number, us]) => `${x(number).toFixed(1)},${y(us).toFixed(1)}`).join(" ");
  const medians = releases.map((one, number) => [number, one.whole.median]);
  const lows = releases.map((one, number) => [number, one.whole.p10]);
  const highs = releases.map((one, number) => [number, one.whole.p90]);
  const ticks = [0, highest / 2, highest];
  const said = releases.map((one) => `${one.release} ${time(one.whole.median)}`).join(", ");
  return draw(
    "svg",
    { width, height, role: "img", "aria-label": `Median of an inference by release: ${said}` },
    ...ticks.flatMap((us) => [
      draw("line", { class: "grid", x1: left, x2: width - right, y1: y(us), y2: y(us) }),
      draw("text", { x: left - 8, y: y(us) + 4, "text-anchor": "end" }, time(us)),
    ]),
    draw("polygon", { class: "band", points: line([...lows, ...highs.reverse()]) }),
    draw("polyline", { class: "line", points: line(medians) }),
    ...medians.map(([number, us]) =>
      draw("circle", { class: number === chosen.release ? "point chosen" : "point", cx: x(number), cy: y(us), r: 4 }),
    ),
    draw("text", { x: left, y: height - 6 }, day(releases[0].first)),
    draw("text", { x: width - right, y: height - 6, "text-anchor": "end" }, day(releases[releases.length - 1].first)),
  );
}
