import { get, listing, mixed, page, start } from "./core.js";

const TOPICS_NAMED = 3;

start("groups", page(mixed(
  listing("rows", { matches: (row, wanted) => row.group.toLowerCase().includes(wanted) || row.topics.some((one) => one.toLowerCase().includes(wanted)) }),
  {
    url: { q: "", sort: "group", page: 1, state: "", lagging: false },
    everyMs: 10000,
    rows: [],

    async load() {
      const { groups } = await get("/api/groups");
      this.rows = groups.map((one) => Object.freeze({ ...one, topics_text: named(one.topics) }));
    },

    get states() { return [...new Set([...this.rows.map((one) => one.state), this.state])].filter(Boolean).sort(); },
    passes(row) { return (!this.state || row.state === this.state) && (!this.lagging || row.lag > 0); },
    begun() { this._q = this.q; },
    changed() { if (this._q !== this.q) { this._q = this.q; this.page = 1; } },
  },
)));

function named(topics) {
  const rest = topics.length - TOPICS_NAMED;
  return topics.slice(0, TOPICS_NAMED).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
