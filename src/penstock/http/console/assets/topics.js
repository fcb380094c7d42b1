import { ask, attempt, clusterPath, get, listing, mixed, page, start } from "./core.js";

const NEW = { name: "", partitions: "", replicas: "", policy: "", retention: "" };

start("topics", page(mixed(
  listing("rows", {
    matches: (row, wanted) => row.name.toLowerCase().includes(wanted),
    sorts: { in: (row) => row.bytes_rate, size: (row) => row.log_bytes },
  }),
  {
    url: { q: "", sort: "name", page: 1, internal: false, trouble: false },
    everyMs: 10000,
    rows: [],
    is_creating: false,
    is_doing: false,
    refused: null,
    draft: { ...NEW },
    _before: null,

    async load() {
      const { topics } = await get(`/api/topics${this.internal ? "" : "?internal=false"}`);
      const at = performance.now() / 1000;
      const before = this._before;
      for (const one of topics) {
        const old = before?.topics.get(one.name);
        const seconds = at - (before?.at ?? at);
        // Totals fall when a broker starts anew: then there is no rate to tell.
        one.rate = old && seconds > 0.5 && one.messages_in_total >= old[0] ? (one.messages_in_total - old[0]) / seconds : null;
        one.bytes_rate = old && seconds > 0.5 && one.bytes_in_total >= old[1] ? (one.bytes_in_total - old[1]) / seconds : null;
        Object.freeze(one);
      }
      const isFirst = !before;
      this._before = { at, topics: new Map(topics.map((one) => [one.name, [one.messages_in_total, one.bytes_in_total]])) };
      this.rows = topics;
      if (isFirst) setTimeout(() => this.refresh(), 1500);
    },

    changed() {
      if (this._internal !== this.internal) { this._internal = this.internal; this.refresh(); }
      if (this._q !== this.q) { this._q = this.q; this.page = 1; }
    },

    begun() { this._internal = this.internal; this._q = this.q; },

    passes(row) { return !this.trouble || row.offline > 0 || row.under_replicated > 0; },

    open() { this.draft = { ...NEW }; this.refused = null; this.is_creating = true; },

    async create() {
      const { name, partitions, replicas, policy, retention } = this.draft;
      const configs = [];
      if (policy) configs.push({ name: "cleanup.policy", value: policy });
      if (retention) configs.push({ name: "retention.ms", value: retention });
      const body = { topic_name: name, configs };
      if (partitions) body.partitions_count = Number(partitions);
      if (replicas) body.replication_factor = Number(replicas);
      const done = await attempt(this, async () => ask("POST", `${await clusterPath()}/topics`, { body }), `${name} is there.`);
      if (done) { this.is_creating = false; this.refresh(); }
    },
  },
)));
