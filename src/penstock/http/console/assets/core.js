// What every page uses: asking the API, state in the URL, refreshing, words for figures, the keyboard, and the start.
import Alpine from "./vendor/alpine-csp-3.17.4.js";
import "./directives.js";

export { Alpine };

// Asking

export class Problem extends Error {
  constructor(status, message, whatToDo = "", code = 0) {
    super(message);
    this.status = status;
    this.whatToDo = whatToDo;
    this.code = code;
  }
}

const UNREACHABLE = ["The server does not answer.", "Is it still running? This page tries again by itself."];

export async function ask(method, path, { body, raw, type, signal, parse } = {}) {
  const options = { method, signal, headers: { accept: "application/json" }, cache: "no-store" };
  if (body !== undefined || raw !== undefined) {
    options.body = raw ?? JSON.stringify(body);
    options.headers["content-type"] = type ?? "application/json";
  }
  let answer, text;
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Problem(0, ...UNREACHABLE);
  }
  let found = null;
  try {
    found = text ? (answer.ok && parse ? parse(text) : JSON.parse(text)) : null;
  } catch {
    throw new Problem(answer.status, "The answer is not JSON.", "Is there a proxy between here and the server?");
  }
  if (!answer.ok) {
    throw new Problem(answer.status, sentence(found?.message ?? `Status ${answer.status}.`), found?.what_to_do ?? "", found?.error_code);
  }
  return found;
}

export const get = (path, options) => ask("GET", path, options);

const sentence = (text) => {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
};

export const query = (values) => {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== "" && value != null) found.set(name, value);
  const text = found.toString();
  return text ? `?${text}` : "";
};

let clusterId = null;
export async function clusterPath() {
  clusterId ??= (await get("/v3/clusters")).data[0].cluster_id;
  return `/v3/clusters/${encodeURIComponent(clusterId)}`;
}

// Where we are

export const pathPart = (number) => decodeURIComponent(location.pathname.split("/")[number] ?? "");
export const pathFrom = (number) => location.pathname.split("/").slice(number).map(decodeURIComponent).join("/");
export const pathOf = (name) => name.split("/").map(encodeURIComponent).join("/");

export function setTitle(text) {
  document.title = `${text} · Penstock`;
}

// A page's state: what it shows, whether that is loading, stale or missing, and which of it stands in the URL.
// `url` has the names that are in the address, with their defaults; a change of one calls `changed`.

export function page(definition) {
  // Not by spreading: that would call the getters.
  const { url: { value: url } = { value: {} }, everyMs: { value: everyMs } = { value: 0 }, ...described } = Object.getOwnPropertyDescriptors(definition);
  const base = {
    ...url,
    is_ready: false,
    is_busy: false,
    problem: null,
    _timer: 0,

    async init() {
      this._readUrl();
      for (const name of Object.keys(url)) this.$watch(name, () => this._urlChanged());
      addEventListener("popstate", () => { this._readUrl(); this.refresh(); });
      document.addEventListener("refresh", () => this.refresh());
      document.addEventListener("visibilitychange", () => { if (!document.hidden && everyMs) this.refresh(); });
      await this.begun?.();
      await this.refresh();
    },

    async refresh() {
      clearTimeout(this._timer);
      const turn = (this._turn = (this._turn ?? 0) + 1);
      this.is_busy = true;
      try {
        await this.load();
        if (turn === this._turn) { this.problem = null; this.is_ready = true; }
      } catch (failure) {
        if (failure.name === "AbortError") return;
        if (!(failure instanceof Problem)) throw failure;
        if (turn === this._turn) this.problem = { text: failure.message, whatToDo: failure.whatToDo, status: failure.status };
      } finally {
        if (turn === this._turn) {
          this.is_busy = false;
          if (everyMs) this._timer = setTimeout(() => document.hidden || this.refresh(), everyMs);
        }
      }
    },

    _readUrl() {
      const found = new URLSearchParams(location.search);
      for (const [name, initial] of Object.entries(url)) {
        const text = found.get(name);
        if (text === null) this[name] = initial;
        else if (typeof initial === "number") this[name] = Number.parseInt(text, 10) || initial;
        else if (typeof initial === "boolean") this[name] = text === "true";
        else this[name] = text;
      }
    },

    _address() {
      const found = {};
      for (const [name, initial] of Object.entries(url)) if (this[name] !== initial) found[name] = this[name];
      return location.pathname + query(found);
    },

    _urlChanged() {
      const address = this._address();
      if (address === location.pathname + location.search) return;
      history.replaceState(null, "", address);
      this.changed?.();
    },

    // For steps that the Back button should undo.
    go(changes) {
      history.pushState(null, "", location.href);
      Object.assign(this, changes);
    },
  };
  return Object.defineProperties(base, described);
}

// A dialog's question: does it, says so, or keeps the dialog open with what is wrong.
export async function attempt(owner, action, said) {
  if (owner.is_doing) return false;
  owner.is_doing = true;
  owner.refused = null;
  try {
    const result = await action();
    if (said) tell(said);
    return result ?? true;
  } catch (failure) {
    if (!(failure instanceof Problem)) throw failure;
    owner.refused = { text: failure.message, whatToDo: failure.whatToDo };
    return false;
  } finally {
    owner.is_doing = false;
  }
}

// Lists: search, sort and pages on what is here already; only one page of rows is ever in the document.

export function listing(rowsName, { perPage = 50, sorts = {}, matches }) {
  return {
    get found() {
      const wanted = this.q.trim().toLowerCase();
      const rows = (this[rowsName] ?? []).filter((row) => (!wanted || matches(row, wanted)) && (this.passes?.(row) ?? true));
      const name = this.sort.replace(/^-/, "");
      const value = sorts[name] ?? ((row) => row[name]);
      const direction = this.sort.startsWith("-") ? -1 : 1;
      return rows.sort((a, b) => direction * compare(value(a), value(b)));
    },
    get pages() { return Math.max(1, Math.ceil(this.found.length / perPage)); },
    get shown() {
      const at = Math.min(Math.max(1, this.page), this.pages);
      return this.found.slice((at - 1) * perPage, at * perPage);
    },
    get range() {
      const count = this.found.length;
      const at = Math.min(Math.max(1, this.page), this.pages);
      return count ? `${integer((at - 1) * perPage + 1)}–${integer(Math.min(count, at * perPage))} of ${integer(count)}` : "none";
    },
    sortBy(name, firstDown) {
      const [first, second] = firstDown ? [`-${name}`, name] : [name, `-${name}`];
      this.sort = this.sort === first ? second : first;
      this.page = 1;
    },
    order(name) {
      return this.sort === name ? "ascending" : this.sort === `-${name}` ? "descending" : "none";
    },
    turn(by) { this.page = Math.min(Math.max(1, this.page + by), this.pages); },
  };
}

const collator = new Intl.Collator("en", { numeric: true });
const compare = (a, b) => {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "string" ? collator.compare(a, b) : a - b;
};

// Object.assign would call getters; this keeps them.
export const mixed = (...parts) => parts.reduce((all, one) => Object.defineProperties(all, Object.getOwnPropertyDescriptors(one)), {});

// Words for figures

const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compacts = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const integer = (value) => (value == null ? "–" : integers.format(value));
export const compact = (value) => (value == null ? "–" : Math.abs(value) < 10000 ? integers.format(value) : compacts.format(value));

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 || Math.abs(value) >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export const rate = (value) => (value == null ? "–" : value > 0 && value < 10 ? value.toFixed(1) : compact(Math.round(value)));

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");
export function moment(milliseconds) {
  if (milliseconds == null || milliseconds < 0) return "–";
  const at = new Date(milliseconds);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}
export const clock = (milliseconds) => moment(milliseconds).slice(11, 19);
export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;
export const state = (text) => (text ?? "").toLowerCase().replaceAll("_", " ");

for (const [name, does] of Object.entries({ integer, compact, bytes, rate, duration, moment, clock, plural, state, pathOf })) {
  Alpine.magic(name, () => does);
}

// Telling

Alpine.store("toasts", {
  list: [],
  next: 1,
  close(id) { this.list = this.list.filter((one) => one.id !== id); },
});

export function tell(text, kind = "good") {
  const toasts = Alpine.store("toasts");
  const id = toasts.next++;
  toasts.list = [...toasts.list.slice(-3), { id, text, kind }];
  setTimeout(() => Alpine.store("toasts").close(id), kind === "bad" ? 12000 : 4000);
}

export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyOldWay(text);
    tell(`${what} copied.`);
  } catch {
    tell("The browser does not allow copying here.", "bad");
  }
}

// Browsers offer the clipboard to https and localhost only.
function copyOldWay(text) {
  const field = document.body.appendChild(document.createElement("textarea"));
  field.value = text;
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("refused");
}
Alpine.magic("copy", () => copy);

// The keyboard

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");
let afterG = 0;

function moveRow(by) {
  const rows = [...document.querySelectorAll("main [data-row]")].filter((one) => one.offsetParent);
  if (!rows.length) return;
  const at = rows.findIndex((one) => one.classList.contains("is-current"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  rows[at]?.classList.remove("is-current");
  next.classList.add("is-current");
  next.scrollIntoView({ block: "nearest" });
}

function toggleTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const chosen = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem("penstock-theme", chosen);
  document.dispatchEvent(new Event("theme"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (Date.now() - afterG < 1500) {
    afterG = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const does = {
    "/": () => document.querySelector("main [data-search]")?.focus(),
    "?": () => document.getElementById("help").showModal(),
    g: () => { afterG = Date.now(); },
    j: () => moveRow(1),
    k: () => moveRow(-1),
    r: () => document.dispatchEvent(new Event("refresh")),
    d: toggleTheme,
    Enter: () => {
      const row = event.target === document.body && document.querySelector("main [data-row].is-current");
      return row ? (row.querySelector("[data-open]") ?? row).click() : false;
    },
  }[event.key];
  if (does && does() !== false) event.preventDefault();
});
document.querySelector("[data-theme-toggle]").addEventListener("click", toggleTheme);
document.querySelector("[data-help]").addEventListener("click", () => document.getElementById("help").showModal());

export function start(name, component) {
  Alpine.data(name, () => component);
  Alpine.start();
}
