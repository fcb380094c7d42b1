import { ask, attempt, get, integer, listing, mixed, moment, page, pathFrom, plural, setTitle, start, tell } from "./core.js";
import "./charts.js";

const group = pathFrom(3);
const path = `/api/groups/${encodeURIComponent(group)}`;
const PARTITIONS_NAMED = 12;
setTitle(group);

const changeWord = (by) => (by > 0 ? `+${integer(by)}` : by < 0 ? `−${integer(-by)}` : "none");

start("group", page(mixed(
  listing("rows", {
    perPage: 100,
    matches: (row, wanted) => row.topic.toLowerCase().includes(wanted) || row.client.toLowerCase().includes(wanted) || (row.member ?? "").includes(wanted),
    sorts: { topic: (row) => row.place },
  }),
  {
    url: { q: "", sort: "topic", page: 1, line: "" },
    everyMs: 5000,
    group,
    rows: [],
    seen: { members: [], partitions: [], coordinator: null },
    lag_chart: null,
    is_moving: false,
    is_deleting: false,
    is_doing: false,
    refused: null,
    typed: "",
    to: "start",
    time: "",
    by: "",
    offset: "",
    topic: "",
    plan: null,
    by_hand: [],

    async load() {
      const [seen, charts] = await Promise.all([get(path), get(this.chart_path)]);
      const clients = new Map(seen.members.map((one) => [one.member, one.client]));
      const most = Math.max(1, ...seen.partitions.map((one) => one.lag ?? 0));
      this.rows = seen.partitions.map((one) => Object.freeze({
        ...one,
        id: `${one.topic}/${one.partition}`,
        place: `${one.topic} ${one.partition}`,
        share: (one.lag ?? 0) / most,
        client: clients.get(one.member) ?? "",
      }));
      for (const one of seen.members) one.assigned = assigned(one.partitions);
      this.seen = seen;
      this.lag_chart = { times: charts.times, lines: [charts.series.lag], word: integer };
    },

    begun() { this._q = this.q; this._line = this.line; },
    changed() {
      if (this._q !== this.q) { this._q = this.q; this.page = 1; }
      if (this._line !== this.line) { this._line = this.line; this.refresh(); }
    },

    // The chart is of the whole group, or of one partition: "topic/0".
    choose(one) { this.line = this.line === one.id ? "" : one.id; },
    get chart_path() {
      const whole = `/api/charts?group=${encodeURIComponent(group)}`;
      const at = this.line.lastIndexOf("/");
      return at < 0 ? whole : `${whole}&topic=${encodeURIComponent(this.line.slice(0, at))}&partition=${encodeURIComponent(this.line.slice(at + 1))}`;
    },
    get line_name() { return this.line.replace("/", " "); },
    get lag_now() { return this.line ? this.rows.find((one) => one.id === this.line)?.lag : this.seen.lag; },

    get has_members() { return this.seen.members.length > 0; },
    get topics() { return [...new Set(this.rows.map((one) => one.topic))].sort(); },

    openReset() {
      this.refused = null;
      this.plan = null;
      this.time ||= moment(Date.now() - 3600_000).slice(0, 19).replace(" ", "T");
      this.by_hand = this.rows.map((one) => ({ id: one.id, topic: one.topic, partition: one.partition, end: one.end, committed: one.committed, target: one.committed ?? 0 }));
      this.is_moving = true;
    },

    get question() {
      if (this.to === "each") {
        const offsets = {};
        for (const one of this.by_hand) {
          if (Number(one.target) !== one.committed) (offsets[one.topic] ??= {})[one.partition] = Number(one.target);
        }
        return { offsets };
      }
      const shift = Number.parseInt(this.by, 10) || 0;
      const to = { time: `@${new Date(this.time).getTime()}`, shift: `${shift < 0 ? "" : "+"}${shift}`, offset: String(this.offset || 0) }[this.to] ?? this.to;
      return this.topic ? { to, topics: [this.topic] } : { to };
    },

    async preview() {
      const found = await attempt(this, () => ask("POST", `${path}/reset`, { body: this.question }));
      if (found) this.plan = found.plan.map((one) => ({ ...one, change: one.committed == null ? "new" : changeWord(one.target - one.committed) }));
    },

    get summary() {
      const again = (this.plan ?? []).reduce((sum, one) => sum + Math.max(0, (one.committed ?? one.target) - one.target), 0);
      const skipped = (this.plan ?? []).reduce((sum, one) => sum + Math.max(0, one.target - (one.committed ?? one.target)), 0);
      return `${plural(again, "message")} will be read again, ${plural(skipped, "message")} will be skipped.`;
    },

    // What was shown is what is done, even if the log has grown since.
    async apply() {
      const offsets = {};
      for (const one of this.plan) (offsets[one.topic] ??= {})[one.partition] = one.target;
      if (!(await attempt(this, () => ask("POST", `${path}/reset`, { body: { offsets, apply: true } }), "The offsets are moved."))) return;
      this.is_moving = false;
      this.refresh();
    },

    openDelete() { this.refused = null; this.typed = ""; this.is_deleting = true; },

    async remove() {
      if (!(await attempt(this, () => ask("DELETE", path)))) return;
      tell(`${group} is deleted.`);
      location.replace("/console/groups");
    },
  },
)));

function assigned(partitions) {
  const rest = partitions.length - PARTITIONS_NAMED;
  return partitions.slice(0, PARTITIONS_NAMED).map(([topic, partition]) => `${topic} ${partition}`).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
