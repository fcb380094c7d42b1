import { get, page, start } from "./core.js";

const written = (value) => (value === "" || value == null ? "–" : String(value));

start("settings", page({
  url: { scope: "brokers", q: "", broker: "", changed_only: false },
  seen: { brokers: [], topics: [], groups: [] },

  async load() { this.seen = await get("/api/settings"); },

  get brokers() { return [...new Set(this.seen.brokers.flatMap((one) => Object.keys(one.values)))].sort((a, b) => a - b); },

  get shown() {
    const wanted = this.q.trim().toLowerCase();
    return (this.seen[this.scope] ?? [])
      .filter((one) => !wanted || one.name.includes(wanted) || one.doc.toLowerCase().includes(wanted))
      .map((one) => this.described(one))
      .filter((one) => this.scope !== "brokers" || !this.changed_only || one.is_changed);
  },

  // Brokers that hold the same value are told together.
  described(setting) {
    const default_word = `default ${written(setting.default)}`;
    if (this.scope !== "brokers") return { ...setting, held: [{ value: written(setting.default), who: "" }], is_changed: false, badge: "default" };
    const held = new Map();
    let isChanged = false;
    for (const [id, { value, source }] of Object.entries(setting.values)) {
      if (this.broker && id !== this.broker) continue;
      isChanged ||= source !== "default";
      held.set(written(value), [...(held.get(written(value)) ?? []), id]);
    }
    const everyone = [...held].map(([value, ids]) => ({ value, who: held.size > 1 ? `broker ${ids.join(", ")}` : "" }));
    return { ...setting, held: everyone.length ? everyone : [{ value: written(setting.default), who: "" }], is_changed: isChanged, badge: isChanged ? default_word : "default" };
  },
}));
