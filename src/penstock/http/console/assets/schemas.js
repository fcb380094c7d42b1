import { ask, attempt, get, listing, mixed, page, pathOf, Problem, start, tell } from "./core.js";
import { LEVELS, typeWord } from "./registry.js";

start("schemas", page(mixed(
  listing("rows", { matches: (row, wanted) => row.subject.toLowerCase().includes(wanted) }),
  {
    url: { q: "", sort: "subject", page: 1, deleted: false, id: 0 },
    rows: [],
    level: "",
    levels: LEVELS,
    known: {},
    is_making: false,
    is_doing: false,
    refused: null,
    name: "",

    async load() {
      if (this.id) return this.find(this.id);
      const [subjects, all, config] = await Promise.all([get("/subjects"), this.deleted ? get("/subjects?deleted=true") : null, get("/config")]);
      const live = new Set(subjects);
      this.rows = (all ?? subjects).map((subject) => Object.freeze({ subject, is_deleted: !live.has(subject) }));
      this.level = config.compatibilityLevel;
      this.known = {};
      this.look();
    },

    // Messages name the id of their schema, its page is that of a subject.
    async find(id) {
      const [first] = await get(`/schemas/ids/${id}/versions`);
      if (!first) throw new Problem(404, `No subject has the schema ${id} any more.`);
      location.replace(`/console/schemas/${pathOf(first.subject)}?version=${first.version}`);
    },

    // Only the rows in sight are asked about.
    async look() {
      for (const { subject, is_deleted } of this.shown) {
        if (this.known[subject]) continue;
        this.known[subject] = { type: "", version: "", id: "" };
        try {
          const one = await get(`/subjects/${pathOf(subject)}/versions/${is_deleted ? "-1?deleted=true" : "latest"}`);
          this.known[subject] = { type: typeWord(one), version: one.version, id: one.id };
        } catch (failure) {
          if (!(failure instanceof Problem)) throw failure;
        }
      }
    },

    latest(subject, field) { return this.known[subject]?.[field] ?? ""; },

    begun() { this._q = this.q; this._deleted = this.deleted; },
    changed() {
      if (this._q !== this.q) { this._q = this.q; this.page = 1; }
      if (this._deleted !== this.deleted) { this._deleted = this.deleted; this.refresh(); } else this.look();
    },

    async setLevel() {
      const level = this.level;
      await attempt(this, () => ask("PUT", "/config", { body: { compatibility: level } }), "The level is set.");
      if (this.refused) { tell(this.refused.text, "bad"); this.refresh(); }
    },

    openNew() { this.name = ""; this.is_making = true; },
    make() { location.assign(`/console/schemas/${pathOf(this.name.trim())}?register=true`); },
  },
)));
