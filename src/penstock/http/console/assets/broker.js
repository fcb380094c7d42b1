import { clusterPath, get, listing, mixed, page, pathPart, Problem, setTitle, start } from "./core.js";

const broker = pathPart(3);
setTitle(`Broker ${broker}`);

start("broker", page(mixed(
  listing("rows", { matches: (row, wanted) => row.topic_name.toLowerCase().includes(wanted), sorts: { place: (row) => `${row.topic_name} ${row.partition_id}` } }),
  {
    url: { q: "", page: 1, behind: false },
    everyMs: 10000,
    broker,
    sort: "place",
    rows: [],
    seen: {},

    async load() {
      const { brokers } = await get("/api/brokers");
      const found = brokers.find((one) => String(one.id) === broker);
      if (!found) throw new Problem(404, `There is no broker ${broker} now.`, "It may be down, or have another number.");
      const { data } = await get(`${await clusterPath()}/brokers/${encodeURIComponent(broker)}/partition-replicas`);
      this.rows = data.map((one) => Object.freeze({ topic_name: one.topic_name, partition_id: one.partition_id, is_leader: one.is_leader, is_in_sync: one.is_in_sync, id: `${one.topic_name}/${one.partition_id}` }));
      this.seen = found;
    },

    passes(row) { return !this.behind || !row.is_in_sync; },
    begun() { this._q = this.q; },
    changed() { if (this._q !== this.q) { this._q = this.q; this.page = 1; } },
  },
)));
