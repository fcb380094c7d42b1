import { ask, attempt, get, page, pathFrom, pathOf, Problem, query, setTitle, start, state, tell } from "./core.js";
import { difference, LEVELS, numbered, readable, reasons, typeWord } from "./registry.js";

const subject = pathFrom(3);
const path = `/subjects/${pathOf(subject)}`;
setTitle(subject);

const STARTS = {
  AVRO: '{\n  "type": "record",\n  "name": "Order",\n  "fields": [\n    {"name": "id", "type": "string"}\n  ]\n}',
  JSON: '{\n  "type": "object",\n  "properties": {\n    "id": {"type": "string"}\n  }\n}',
  PROTOBUF: 'syntax = "proto3";\n\nmessage Order {\n  string id = 1;\n}\n',
};

start("schema", page({
  url: { version: 0, against: "0", deleted: false, register: false },
  subject,
  levels: LEVELS,
  versions: [],
  current: null,
  other: null,
  level: "",
  level_of_all: "",
  draft: "",
  draft_type: "AVRO",
  verdict: null,
  is_deleting: false,
  delete_what: "version",
  typed: "",
  is_doing: false,
  refused: null,

  async load() {
    const asked = query({ deleted: this.deleted || "" });
    const [versions, all, own] = await Promise.all([
      get(`${path}/versions${asked}`).catch(none([])),
      get("/config"),
      get(`/config/${pathOf(subject)}`).catch(none(null)),
    ]);
    this.versions = versions.sort((a, b) => b - a);
    this.level_of_all = all.compatibilityLevel;
    this.level = own?.compatibilityLevel ?? "";
    if (!versions.length) { this.current = null; return; }
    this.current = await get(`${path}/versions/${this.shown_version}${asked}`);
    const against = Number(this.against);
    this.other = against && against !== this.shown_version ? await get(`${path}/versions/${against}${asked}`) : null;
  },

  begun() { if (this.register) this.openRegister(); },
  changed() {
    const wanted = `${this.version} ${this.against}`;
    if (this._wanted === wanted) return;
    this._wanted = wanted;
    this.refresh();
  },

  get shown_version() { return this.versions.includes(this.version) ? this.version : this.versions[0]; },
  get others() { return this.versions.filter((one) => one !== this.shown_version); },
  get type() { return this.current ? typeWord(this.current) : ""; },
  get text() { return this.current ? readable(this.current) : ""; },
  get lines() { return this.other ? difference(readable(this.other), this.text) : numbered(this.text); },
  get references() { return this.current?.references ?? []; },
  get topic() { return /^[\w.-]+-(value|key)$/.test(subject) ? subject.replace(/-(value|key)$/, "") : ""; },

  choose(version) {
    // The version before it is what one wants to compare with, once comparing.
    const before = this.versions[this.versions.indexOf(version) + 1];
    this.go({ version, against: this.other ? String(before ?? 0) : "0" });
  },

  async setLevel() {
    const level = this.level;
    const done = level ? ask.bind(null, "PUT", `/config/${pathOf(subject)}`, { body: { compatibility: level } }) : ask.bind(null, "DELETE", `/config/${pathOf(subject)}`);
    await attempt(this, done, "The level is set.");
    if (this.refused) { tell(this.refused.text, "bad"); this.refresh(); }
  },

  openRegister() {
    this.refused = this.verdict = null;
    if (!this.draft) this.draft = this.text || STARTS[this.draft_type];
    this.$watch("draft_type", (kind) => { if (Object.values(STARTS).includes(this.draft)) this.draft = STARTS[kind]; });
    this.register = true;
  },

  get body() {
    const kind = this.current?.schemaType ?? (this.current ? "AVRO" : this.draft_type);
    return { schema: this.draft, schemaType: kind, ...(this.references.length && { references: this.references }) };
  },

  // Against what the level says: with the transitive ones that is every version.
  async check() {
    const verdict = await attempt(this, () => ask("POST", `/compatibility${path}/versions?verbose=true`, { body: this.body }));
    if (verdict) this.verdict = { ...verdict, reasons: reasons(verdict.messages) };
  },

  get verdict_words() {
    const level = state(this.level || this.level_of_all);
    return this.versions.length ? `The level is ${level}.` : "It is the first version.";
  },
  get can_register() { return Boolean(this.verdict?.is_compatible); },

  async send() {
    if (!(await attempt(this, () => ask("POST", `${path}/versions`, { body: this.body }), "It is registered."))) return;
    Object.assign(this, { register: false, draft: "", verdict: null, version: 0, against: "0" });
    this.refresh();
  },

  openDelete() { this.refused = null; this.typed = ""; this.is_deleting = true; },

  async remove() {
    const isWhole = this.delete_what === "subject";
    const what = isWhole ? path : `${path}/versions/${this.shown_version}`;
    if (!(await attempt(this, () => ask("DELETE", what), "It is deleted."))) return;
    if (isWhole || this.versions.length === 1) return location.replace("/console/schemas");
    Object.assign(this, { is_deleting: false, version: 0 });
    this.refresh();
  },
}));

// What is not there is no problem where it may be missing.
function none(instead) {
  return (failure) => {
    if (failure instanceof Problem && failure.status === 404) return instead;
    throw failure;
  };
}
