import { bytes, get, integer, page, rate, start, state } from "./core.js";
import { BINARY_STEPS } from "./charts.js";

const PROBLEMS_SHOWN = 5;
const GROUPS_SHOWN = 6;
const bytesPerSecond = (value) => `${bytes(value)}/s`;

async function withHistory(group) {
  const { times, series } = await get(`/api/charts?group=${encodeURIComponent(group.group)}`);
  return { ...group, chart: { times, lines: [series.lag], word: integer } };
}

start("overview", page({
  everyMs: 5000,
  seen: { brokers: [], problems: [], groups_by_state: {} },
  behind: [],
  lag: null,
  all_problems: false,
  now: {},
  messages_chart: null,
  bytes_chart: null,

  async load() {
    const [seen, charts, groups] = await Promise.all([get("/api/overview"), get("/api/charts"), get("/api/groups")]);
    this.seen = seen;
    this.lag = groups.groups.reduce((sum, one) => sum + one.lag, 0);
    const behind = groups.groups.filter((one) => one.lag > 0).sort((a, b) => b.lag - a.lag).slice(0, GROUPS_SHOWN);
    this.behind = await Promise.all(behind.map(withHistory));
    const { times, series } = charts;
    this.now = Object.fromEntries(Object.entries(series).map(([name, values]) => [name, values.at(-1)]));
    this.messages_chart = { times, lines: [series.messages_in], word: rate };
    this.bytes_chart = { times, lines: [series.bytes_in, series.bytes_out], word: bytesPerSecond, steps: BINARY_STEPS };
  },

  get problems_shown() {
    // The API names the thing; its page has the same path under /console.
    const named = this.seen.problems.map((one) => ({ ...one, href: one.link.replace(/^\/api\//, "/console/") }));
    return this.all_problems ? named : named.slice(0, PROBLEMS_SHOWN);
  },

  get states() {
    return Object.entries(this.seen.groups_by_state).map(([name, count]) => `${integer(count)} ${state(name)}`).join(", ");
  },

  get disk() {
    const known = this.seen.brokers.filter((one) => one.disk_free_bytes != null);
    if (!known.length) return "";
    // Brokers may share a disk, so free space is not to be added up.
    const least = bytes(Math.min(...known.map((one) => one.disk_free_bytes)));
    return known.length === 1 ? `${least} free` : `${least} free on the fullest disk`;
  },

  used: (broker) => (broker.disk_total_bytes ? 1 - broker.disk_free_bytes / broker.disk_total_bytes : 0),
}));
