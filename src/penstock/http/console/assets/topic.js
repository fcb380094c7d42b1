import { ask, attempt, clusterPath, get, listing, mixed, page, pathPart, setTitle, start, tell } from "./core.js";

const topic = pathPart(3);
const path = async (rest = "") => `${await clusterPath()}/topics/${encodeURIComponent(topic)}${rest}`;
setTitle(topic);

start("topic", page(mixed(listing("rows", { perPage: 100, matches: () => true }), {
  url: { tab: "partitions", page: 1, setting: "", changed_only: false },
  everyMs: 10000,
  topic,
  q: "",
  sort: "partition",
  rows: [],
  seen: { partitions: [], configs: [] },
  groups: null,
  editing: "",
  value: "",
  count: "",
  clone_name: "",
  typed: "",
  is_deleting: false,
  is_doing: false,
  refused: null,

  async load() {
    const seen = await get(`/api/topics/${encodeURIComponent(topic)}`);
    const most = Math.max(1, ...seen.partitions.map((one) => one.end - one.start));
    this.rows = seen.partitions.map((one) => {
      const sizes = Object.values(one.log_bytes);
      const count = one.end == null ? null : one.end - one.start;
      return { ...one, count, share: count / most, size: sizes.length ? sizes.reduce((sum, size) => sum + size, 0) : null };
    });
    this.seen = seen;
    if (this.tab === "groups") this.groups = (await get("/api/groups")).groups.filter((one) => one.topics.includes(topic));
  },

  get replicas() { return this.seen.partitions[0]?.replicas.length ?? 0; },
  get size() { return this.rows.some((one) => one.size != null) ? this.rows.reduce((sum, one) => sum + (one.size ?? 0), 0) : null; },
  get behind() { return this.seen.partitions.filter((one) => one.isr.length < one.replicas.length).length; },
  get offline() { return this.seen.partitions.filter((one) => one.leader < 0).length; },

  // Of the dirtiest partition; null where nothing is compacted.
  get dirty() {
    const ratios = this.seen.partitions.map((one) => one.dirty_ratio).filter((one) => one != null);
    return ratios.length ? `${Math.round(100 * Math.max(...ratios))}%` : null;
  },
  get compacting() {
    const found = this.seen.partitions.find((one) => one.compaction_progress != null);
    return found ? `partition ${found.partition} is at ${Math.round(100 * found.compaction_progress)}%` : "of the dirtiest partition's log";
  },

  get settings_shown() {
    const wanted = this.setting.trim().toLowerCase();
    return this.seen.configs.filter((one) => (!this.changed_only || one.source === "topic") && (!wanted || one.name.includes(wanted) || one.doc.toLowerCase().includes(wanted)));
  },

  edit(setting) { this.refused = null; this.value = setting.value ?? ""; this.editing = setting.name; },

  async save(setting) {
    const body = { value: this.value };
    if (await attempt(this, async () => ask("PUT", await path(`/configs/${setting.name}`), { body }), `${setting.name} is set.`)) this.settled();
  },

  async reset(setting) {
    if (await attempt(this, async () => ask("DELETE", await path(`/configs/${setting.name}`)), `${setting.name} has its default.`)) this.settled();
  },

  settled() { this.editing = ""; this.refresh(); },

  async grow() {
    const body = { partitions_count: Number(this.count) };
    if (await attempt(this, async () => ask("PATCH", await path(), { body }), `${topic} has ${this.count} partitions.`)) { this.count = ""; this.refresh(); }
  },

  async clone() {
    const configs = this.seen.configs.filter((one) => one.source === "topic" && !one.is_sensitive).map(({ name, value }) => ({ name, value }));
    const body = { topic_name: this.clone_name, partitions_count: this.seen.partitions.length, replication_factor: this.replicas, configs };
    if (await attempt(this, async () => ask("POST", `${await clusterPath()}/topics`, { body }))) location.assign(`/console/topics/${this.clone_name}`);
  },

  async remove() {
    if (!(await attempt(this, async () => ask("DELETE", await path())))) return;
    tell(`${topic} is deleted.`);
    location.replace("/console/topics");
  },
})));
