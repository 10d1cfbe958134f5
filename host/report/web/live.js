// The fleet as it is now: events of the server, and buttons that stop and take back rollouts.

const EVENTS = "/v1/fleet/events";
const TOKEN = "edgekit-operator-token";
const MOST_SHOWN = 500;
const SILENT_SECONDS = 3600;
const SURE_MS = 5000;
const LONGEST_PAUSE_MS = 30000;
const STATES = [
  ["done", ["done"]],
  ["active", ["watched", "going"]],
  ["troubled", ["failed", "lost"]],
];
const known = { boards: [], rollouts: [] };
let sure = ""; // the action that a second click confirms
let token = sessionStorage.getItem(TOKEN) ?? "";

const element = (id) => document.getElementById(id);
const say = (text) => (element("subtitle").textContent = text);

function ago(seconds) {
  if (!seconds) return "never";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  if (passed < 90) return `${Math.round(passed)} s ago`;
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 172800) return `${Math.round(passed / 3600)} h ago`;
  return `${Math.round(passed / 86400)} days ago`;
}

function progress({ counts }) {
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const pieces = STATES.map(([kind, states]) => {
    const boards = states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
    return make("div", { class: kind, "--share": `${(100 * boards) / (total || 1)}%` });
  });
  const words = Object.entries(counts).map(([state, boards]) => `${boards} ${state}`);
  return [
    make("div", { class: "track boards", "aria-hidden": "true" }, ...pieces),
    make("p", { class: "quiet" }, `${count(total, "board", "boards")}: ${words.join(", ")}`),
  ];
}

function button(rollout, action, text) {
  const key = `${rollout}/${action}`;
  const press = () => {
    if (sure !== key) {
      sure = key;
      setTimeout(() => { if (sure === key) { sure = ""; showRollouts(); } }, SURE_MS);
      showRollouts();
      return;
    }
    sure = "";
    act(rollout, action);
  };
  const asked = sure === key;
  return make("button", { class: asked ? "sure" : null, "data-action": action, onclick: press }, asked ? `${text}: are you sure?` : text);
}

function showRollouts() {
  const rows = known.rollouts.map((one) => {
    const open = ["in progress", "interrupted"].includes(one.state);
    const bad = one.state === "stopped" || one.troubled.length > 0;
    const returns = !["in progress", "stopping", "rolled back"].includes(one.state);
    return make(
      "article",
      {},
      make(
        "h3",
        {},
        one.name ? `${one.model} as ${one.name}` : one.model,
        make("span", { class: bad ? "state bad" : "state" }, one.state),
        make("span", { class: "quiet" }, `${one.id}, begun ${ago(one.began)}`),
      ),
      ...progress(one),
      one.reason ? make("p", {}, one.reason) : null,
      one.troubled.length ? make("ul", { class: "quiet" }, ...one.troubled.map(({ name, state, message }) => make("li", {}, `${name} ${state}${message ? `: ${message}` : ""}`))) : null,
      one.note ? make("p", {}, one.note) : null,
      open ? button(one.id, "stop", "Stop") : null,
      returns ? button(one.id, "rollback", "Roll back") : null,
    );
  });
  if (!rows.length) rows.push(make("p", { class: "quiet" }, "none yet"));
  show("rollout-rows", ...rows);
}

function boardRow(board) {
  const [model] = board.models.slice(-1);
  const silent = board.seen && Date.now() / 1000 - board.seen > SILENT_SECONDS;
  const others = board.models.length - 1;
  const fetched = board.reports.map(({ end, release, message }) => `${end} ${release}${message ? `: ${message}` : ""}`);
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, board.name),
    make("td", { class: silent ? "text bad" : "text" }, ago(board.seen)),
    make("td", { class: "text" }, model ? `${model.model} ${model.release.slice(0, 8)}${others > 0 ? ` and ${count(others, "other", "others")}` : ""}` : "–"),
    make("td", { class: "number" }, time(model?.median_us)),
    make("td", { class: "number roomy" }, time(model?.p90_us)),
    make("td", { class: board.throttled ? "number roomy bad" : "number roomy" }, board.temperature_c === null ? "–" : `${board.temperature_c.toFixed(0)}${board.throttled ? ", throttled" : ""}`),
    make("td", { class: "text roomy" }, fetched.join("; ") || "–"),
  );
}

function showBoards() {
  const wanted = element("filter").value.toLowerCase();
  const found = known.boards.filter((one) => one.name.toLowerCase().includes(wanted));
  const columns = [["Board", "text"], ["Heard of", "text"], ["Model", "text"], ["Median", ""], ["p90", "roomy"], ["°C", "roomy"], ["Last fetch", "text roomy"]];
  const rows = found.slice(0, MOST_SHOWN).map(boardRow);
  const hidden = found.length - rows.length;
  const total = `${count(known.boards.length, "board is", "boards are")} enrolled${hidden > 0 ? `; ${hidden} are not listed, use the filter` : ""}.`;
  show("board-rows", make("table", {}, heading(...columns), make("tbody", {}, ...rows)), make("p", { class: "quiet" }, total));
}

function take(name, data) {
  known[name] = JSON.parse(data);
  if (name === "boards") showBoards();
  else showRollouts();
  say(`live, changed at ${new Date().toLocaleTimeString()}`);
}

function parse(message) {
  const lines = message.split("\n").map((line) => line.split(/: ?(.*)/s));
  const fields = Object.fromEntries(lines);
  if (fields.event in known) take(fields.event, fields.data);
}

async function ask(path, method = "GET") {
  const answer = await fetch(path, { method, headers: { Authorization: `Bearer ${token}` } });
  if (answer.status === 401) throw new Error("This is not the server's token.");
  return answer;
}

async function act(rollout, action) {
  element("answer").textContent = "…";
  try {
    const answer = await ask(`/v1/fleet/rollouts/${rollout}/${action}`, "POST");
    element("answer").textContent = await answer.text();
  } catch (error) {
    element("answer").textContent = error.message;
  }
  showRollouts();
}

async function listen() {
  const answer = await ask(EVENTS);
  if (!answer.ok) return false;
  sessionStorage.setItem(TOKEN, token);
  element("entry").hidden = true;
  element("fleet").hidden = false;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    messages.forEach(parse);
  }
}

async function connect() {
  for (let pause = 1000; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    try {
      if (await listen()) pause = 500;
    } catch (error) {
      if (error instanceof TypeError || error.name === "AbortError") {
        say("the connection is lost");
      } else {
        sessionStorage.removeItem(TOKEN);
        element("refusal").textContent = error.message;
        element("entry").hidden = false;
        element("fleet").hidden = true;
        say("not connected");
        return;
      }
    }
    say("connecting again");
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

element("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  token = element("token").value.trim();
  element("token").value = "";
  element("refusal").textContent = "";
  if (/^[0-9a-f]{64}$/.test(token)) connect();
  else element("refusal").textContent = "A token has 64 characters, 0 to 9 and a to f.";
});
element("filter").addEventListener("input", showBoards);
setInterval(() => { if (!element("fleet").hidden) { showBoards(); showRollouts(); } }, 10000);
if (token) connect();
