import { ask, attempt, get, listing, mixed, page, start } from "./core.js";

const FINISHED = /^(EMPTY|COMPLETE_?COMMIT|COMPLETE_?ABORT|DEAD)$/i;

const PARTITIONS_NAMED = 4;

function row(one) {
  const isOpen = !FINISHED.test(one.state);
  const named = (one.partitions ?? []).map(([topic, partition]) => `${topic} ${partition}`);
  const rest = named.length - PARTITIONS_NAMED;
  return Object.freeze({
    ...one,
    is_open: isOpen,
    producer: `${one.producer_id}, epoch ${one.producer_epoch ?? "–"}`,
    age: isOpen && one.started_ms > 0 ? Math.max(0, Date.now() - one.started_ms) / 1000 : null,
    partitions_all: named.join(", "),
    partitions_text: named.slice(0, PARTITIONS_NAMED).join(", ") + (rest > 0 ? ` and ${rest} more` : ""),
  });
}

start("transactions", page(mixed(
  listing("rows", { matches: (row, wanted) => row.transactional_id.toLowerCase().includes(wanted) }),
  {
    url: { q: "", sort: "transactional_id", page: 1, all: false },
    everyMs: 5000,
    rows: [],
    is_served: true,
    is_aborting: false,
    is_doing: false,
    refused: null,
    doomed: row({ transactional_id: "", state: "EMPTY", producer_id: -1 }),

    async load() {
      const { is_served, transactions } = await get("/api/transactions");
      this.is_served = is_served;
      this.rows = transactions.map(row);
    },

    openAbort(one) { this.refused = null; this.doomed = one; this.is_aborting = true; },

    async abort() {
      const { transactional_id, producer_id, producer_epoch } = this.doomed;
      const path = `/api/transactions/${encodeURIComponent(transactional_id)}/abort`;
      if (!(await attempt(this, () => ask("POST", path, { body: { producer_id, producer_epoch } }), `${transactional_id} is aborted.`))) return;
      this.is_aborting = false;
      this.refresh();
    },

    passes(row) { return this.all || row.is_open; },
    begun() { this._q = this.q; },
    changed() { if (this._q !== this.q) { this._q = this.q; this.page = 1; } },
  },
)));
