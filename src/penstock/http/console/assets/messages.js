import { ask, attempt, copy, get, moment, page, pathPart, Problem, query, setTitle, start, tell } from "./core.js";
import { parseExact, preview, stringify, wholeText } from "./json.js";

const topic = pathPart(3);
const base = `/api/topics/${encodeURIComponent(topic)}`;
const LIMIT = 50;
const LIVE_SHOWN_MAX = 200;
const FORMATS_WITH_SCHEMA = ["avro", "protobuf", "jsonschema"];
setTitle(`${topic} · Messages`);

// Frozen, so that Alpine does not watch every field of every value.
const row = (message, isNew) => Object.freeze({
  ...message,
  id: `${message.partition}:${message.offset}`,
  time: moment(message.timestamp),
  key_text: message.key.encoding === "null" ? "null" : preview(message.key, 80),
  value_text: message.value.encoding === "null" ? "null (deletes the key)" : preview(message.value),
  link: `${location.pathname}?from=${message.offset}&partition=${message.partition}&open=${message.partition}:${message.offset}`,
  is_new: isNew,
});

start("messages", page({
  url: { from: "newest", partition: "", filter: "", cursor: "", live: false, open: "", produce: false },
  topic,
  tab: "messages",
  mode: "newest",
  offset: "",
  time: "",
  partition_draft: "",
  filter_draft: "",
  list: [],
  scanned: 0,
  total: 0,
  left: 0,
  next: null,
  elapsed: 0,
  filter_errors: 0,
  filter_error: "",
  is_live: false,
  is_paused: false,
  is_sampled: false,
  connected: false,
  arriving: 0,
  waiting: [],
  is_helping: false,
  is_doing: false,
  refused: null,
  draft: { key: "", partition: "", format: "json", value: '{\n  "hello": "penstock"\n}', headers: [] },
  examples: ['value.amount > 10', 'key == "user-1"', 'value.items.exists(i, i.sku == "A-1")', 'headers.source == "web"', 'has(value.error) && partition == 0', 'timestamp > 1735689600000', 'value.name.contains("penstock")'],

  begun() { this.readForm(); },

  readForm() {
    this.filter_draft = this.filter;
    this.partition_draft = this.partition;
    this.offset = "";
    this.time = "";
    if (this.live) this.mode = "live";
    else if (this.from === "newest" || this.from === "start") this.mode = this.from;
    else if (this.from.startsWith("@")) {
      this.mode = "time";
      this.time = moment(Number(this.from.slice(1))).slice(0, 19).replace(" ", "T");
    } else { this.mode = "offset"; this.offset = this.from; }
  },

  async load() {
    this.stop();
    this.readForm();
    if (this.live) return this.follow();
    this._asking?.abort();
    this._asking = new AbortController();
    const asked = query({ from: this.from, limit: LIMIT, partition: this.partition, filter: this.filter, cursor: this.cursor });
    const answer = await get(`${base}/messages${asked}`, { signal: this._asking.signal, parse: parseExact });
    this.list = answer.messages.map((one) => row(one, false));
    this.scanned = answer.scanned;
    this.total = answer.total;
    this.left = answer.left;
    this.next = answer.cursor;
    this.elapsed = answer.elapsed_ms;
    this.filter_errors = answer.filter_errors;
    this.filter_error = answer.filter_error;
  },

  // The form

  moved() {
    if (this.mode === "newest" || this.mode === "start" || this.mode === "live") this.search();
    else if (this.mode === "time" && !this.time) this.time = moment(Date.now() - 3600_000).slice(0, 19).replace(" ", "T");
  },

  get place() {
    if (this.mode === "offset") return String(this.offset || "start");
    if (this.mode === "time") return this.time ? `@${new Date(this.time).getTime()}` : "start";
    return this.mode === "start" ? "start" : "newest";
  },

  search() {
    const wanted = { filter: this.filter_draft.trim(), partition: this.partition_draft.trim(), from: this.place, live: this.mode === "live" };
    this.show({ ...wanted, cursor: "", open: "" });
  },

  show(changes) {
    this.go(changes);
    this.list = [];
    this.$nextTick(() => this.refresh());
  },

  take(example) { this.filter_draft = example; this.is_helping = false; },
  goOn() { this.show({ cursor: this.next, open: "" }); },
  back() { history.back(); },

  get nothing() {
    if (this.is_live) return this.filter ? "Nothing that passes the filter has come yet." : "Waiting for messages.";
    if (this.filter) return this.left ? `Nothing in the ${this.scanned.toLocaleString("en")} messages that were looked at.` : "No message passes the filter.";
    return this.total === 0 ? "The topic is empty." : "Nothing here.";
  },

  // Rows

  toggle(message) {
    this.open = this.open === message.id ? "" : message.id;
    // What is looked at stays where it is.
    if (this.open && this.is_live && !this.is_paused) this.pause();
  },
  copyValue(message) { copy(wholeText(message.value), "The value"); },
  copyMessage({ partition, offset, timestamp, key, value, headers }) {
    copy(stringify({ topic, partition, offset, timestamp, key: key.value, value: value.value, headers }, 2), "The message");
  },

  // Live: the server sends a sample four times a second, whatever the rate; here only the newest are kept.

  async follow() {
    const asked = { partition: this.partition, filter: this.filter };
    // An event stream cannot tell why it was refused, so a small question goes first.
    await get(`${base}/messages${query({ ...asked, limit: 1, scan_max: 1, timeout_ms: 1000 })}`);
    Object.assign(this, { list: [], waiting: [], scanned: 0, total: 0, arriving: 0, is_live: true, is_paused: false, is_sampled: false, filter_errors: 0 });
    const stream = (this._stream = new EventSource(`${base}/tail${query(asked)}`));
    stream.onopen = () => { this.connected = true; };
    stream.onerror = () => { this.connected = false; };
    stream.addEventListener("messages", (event) => this.arrived(parseExact(event.data)));
  },

  arrived(found) {
    const now = performance.now() / 1000;
    this._rates = [...(this._rates ?? []), [now, found.total]].slice(-12);
    const [first, last] = [this._rates[0], this._rates.at(-1)];
    this.arriving = last[0] > first[0] ? Math.max(0, last[1] - first[1]) / (last[0] - first[0]) : 0;
    this.scanned = found.scanned;
    this.total = found.total;
    this.is_sampled = this.filter ? found.scanned < found.total : this.arriving > 45;
    this.filter_errors = found.filter_errors;
    this.filter_error = found.filter_error;
    if (!found.messages.length) return;
    const rows = found.messages.map((one) => row(one, true));
    if (this.is_paused) this.waiting = [...rows, ...this.waiting].slice(0, LIVE_SHOWN_MAX);
    else this.list = [...rows, ...this.list].slice(0, LIVE_SHOWN_MAX);
  },

  pause() {
    this.is_paused = !this.is_paused;
    if (this.is_paused) return;
    this.list = [...this.waiting, ...this.list].slice(0, LIVE_SHOWN_MAX);
    this.waiting = [];
  },

  stop() {
    this._stream?.close();
    this._stream = null;
    this._rates = [];
    this.is_live = this.connected = false;
  },

  // Producing

  get needs_schema() { return FORMATS_WITH_SCHEMA.includes(this.draft.format); },

  async send() {
    const said = await attempt(this, () => this.sent());
    if (!said) return;
    tell(`It is at partition ${said.partition}, offset ${said.offset}.`);
    if (!this.is_live) this.refresh();
  },

  sent() {
    const { key, partition, format, value, headers } = this.draft;
    const envelope = {};
    if (key !== "") envelope.key = key;
    if (partition !== "") envelope.partition = Number(partition);
    const named = headers.filter((one) => one.name);
    if (named.length) envelope.headers = grouped(named);
    const isText = format === "text" || format === "base64";
    if (!isText && format !== "tombstone") checkJson(value);
    // The value goes as it was written: numbers keep their digits.
    const written = format === "tombstone" ? "null" : isText ? JSON.stringify(value) : value;
    const raw = `{"value": ${written}${Object.keys(envelope).length ? `, ${JSON.stringify(envelope).slice(1)}` : "}"}`;
    const type = `application/json; value=${format === "tombstone" ? "base64" : format}`;
    return ask("POST", `/topics/${encodeURIComponent(topic)}/messages`, { raw, type });
  },
}));

function grouped(headers) {
  const found = {};
  for (const { name, value } of headers) found[name] = name in found ? [found[name], value].flat() : value;
  return found;
}

function checkJson(text) {
  try {
    JSON.parse(text);
  } catch (failure) {
    throw new Problem(422, "The value is not JSON.", failure.message);
  }
}
