// The fleet: which releases boards run, how much their times differ, and which boards are outliers.

const MOST_RELEASES_SHOWN = 6;

function showOverview() {
  const { fleet } = report;
  const section = document.getElementById("overview");
  section.hidden = !fleet;
  if (section.hidden) return;
  const { boards, groups, straggler_count } = fleet;
  const parts = [count(boards, "board", "boards"), count(groups.length, "group", "groups"), count(straggler_count, "straggler", "stragglers")];
  if (fleet.missing_count) parts.push(`${fleet.missing_count.toLocaleString("en")} in the inventory never heard`);
  show("overview-status", parts.join(", "));
  show("overview-groups", groupTable(fleet.groups));
  show("overview-stragglers", ...stragglerTable(fleet));
}

function groupTable(groups) {
  const rows = groups.map((group) => {
    const newest = group.releases[group.releases.length - 1];
    const most = Math.max(...group.releases.map((one) => one.slowest));
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, groupButton(group)),
      make("td", { class: "number" }, group.boards.toLocaleString("en")),
      make("td", { class: "shares" }, shareBar(group), shareText(group)),
      make("td", { class: "bar roomy" }, track(most, { wide: [newest.spread.p10, newest.spread.p90], marks: [[newest.spread.median, ""], [newest.slowest, "expected"]] })),
      make("td", { class: "number roomy" }, time(newest.spread.median)),
      make("td", { class: "number roomy" }, time(newest.slowest)),
      make("td", { class: "number" }, group.straggler_count.toLocaleString("en")),
    );
  });
  const columns = [["Model", "text"], ["Boards", ""], ["Releases", "text shares"], ["Spread of the newest", "bar roomy"], ["Median", "roomy"], ["Slowest", "roomy"], ["Stragglers", ""]];
  return make("table", {}, heading(...columns), make("tbody", {}, ...rows));
}

function groupButton(group) {
  const number = subjectOf(group);
  const name = make("span", {}, group.model, make("small", {}, `${group.board_type}, ${THREADS(group)}`));
  if (number < 0) return name;
  return make("button", { class: "plain", type: "button", "data-group": number, onclick: () => pick("subject", number) }, name);
}

function subjectOf(group) {
  return report.subjects.findIndex((one) => ["model", "board_type", "threads", "variant"].every((key) => one[key] === group[key]));
}

function shareBar(group) {
  let from = 0;
  const pieces = [...group.releases].reverse().map((one, age) => {
    const to = from + one.boards / group.boards;
    const piece = make("div", { class: `share age${Math.min(age, 3)}`, "--from": percentOf(from), "--to": percentOf(to), title: `${one.release}: ${count(one.boards, "board", "boards")}` });
    from = to;
    return piece;
  });
  return make("div", { class: "track", "aria-hidden": "true" }, ...pieces);
}

function percentOf(share) {
  return `${(100 * Math.min(share, 1)).toFixed(2)}%`;
}

function shareText(group) {
  const shown = [...group.releases].reverse().slice(0, MOST_RELEASES_SHOWN).map((one) => `${one.release.slice(0, 8)} on ${one.boards.toLocaleString("en")}`);
  const more = group.releases.length - shown.length;
  return make("small", {}, shown.join(", ") + (more > 0 ? ` and ${more} more` : ""));
}

function stragglerTable(fleet) {
  const rows = fleet.groups.flatMap((group) =>
    group.stragglers.map((one) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, one.board, make("small", {}, `${group.model} on ${group.board_type}`)),
        make("td", { class: "text" }, one.why.join(", ")),
        make("td", { class: "number roomy" }, time(one.us)),
        make("td", { class: "number" }, change(one.ratio)),
        make("td", { class: "text roomy" }, one.release.slice(0, 8)),
        make("td", { class: "number roomy" }, one.throttled === null ? "–" : percent(one.throttled)),
        make("td", { class: "number roomy" }, one.temperature_c === null ? "–" : one.temperature_c.toFixed(0)),
        make("td", { class: "number roomy" }, day(one.heard)),
      ),
    ),
  );
  const columns = [["Board", "text"], ["Why", "text"], ["Median", "roomy"], ["To peers", ""], ["Release", "text roomy"], ["Throttled", "roomy"], ["°C", "roomy"], ["Last heard", "roomy"]];
  const parts = rows.length ? [make("table", {}, heading(...columns), make("tbody", {}, ...rows))] : [make("p", {}, "No board is unlike the others.")];
  const hidden = fleet.groups.reduce((sum, one) => sum + one.straggler_count, 0) - rows.length;
  const more = hidden > 0 ? `${count(hidden, "straggler is", "stragglers are")} not listed. ` : "";
  parts.push(make("p", { class: "quiet" }, `${more}Slow: more than 10%, and more than three robust standard deviations, over the median of the boards with the same model, type and release. Older release: most boards run a newer one. Silent: not heard for a day when others were.`));
  if (fleet.missing_count) {
    const rest = fleet.missing_count - fleet.missing.length;
    parts.push(make("p", {}, `Never heard: ${fleet.missing.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}.`));
  }
  return parts;
}
