import { get, page, start } from "./core.js";

start("brokers", page({
  everyMs: 5000,
  rows: [],
  troubled: [],

  async load() {
    const [{ brokers }, { topics }] = await Promise.all([get("/api/brokers"), get("/api/topics")]);
    const leaders = Math.max(1, brokers.reduce((sum, one) => sum + one.leaders, 0));
    this.rows = brokers.map((one) => ({
      ...one,
      leader_share: one.leaders / leaders,
      disk_share: one.disk_total_bytes ? 1 - one.disk_free_bytes / one.disk_total_bytes : 0,
      up_seconds: one.started == null ? null : Date.now() / 1000 - one.started,
    }));
    this.troubled = topics.filter((one) => one.offline || one.under_replicated).slice(0, 100);
  },
}));
