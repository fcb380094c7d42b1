// What the two pages of schemas share: levels, words for types, readable schemas, differences between two of them.

export const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

export const typeWord = ({ schemaType = "AVRO" }) => ({ AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema" })[schemaType] ?? schemaType;

export function readable({ schema, schemaType = "AVRO" }) {
  if (schemaType === "PROTOBUF") return schema;
  try {
    return JSON.stringify(JSON.parse(schema), null, 2);
  } catch {
    return schema;
  }
}

// The registry's reasons have a form of their own, and repeat the old schema: people need what is wrong, and where.
export function reasons(messages = []) {
  return messages.flatMap((text) => {
    const [, kind, told] = /^\{errorType:'(\w+)', description:'(.*?)'(?:, additionalInfo:.*)?\}$/s.exec(text) ?? [];
    if (kind) return [{ kind, text: told }];
    const [, version] = /^\{oldSchemaVersion: (\d+)\}$/.exec(text) ?? [];
    if (version) return [{ kind: "", text: `Compared with version ${version}.` }];
    return /^\{(oldSchema|validateFields|compatibility): /.test(text) ? [] : [{ kind: "", text }];
  });
}

const CONTEXT_LINES = 3;
const LINES_COMPARED_MAX = 4000;

// Lines as {kind: same | added | removed | skipped, text, number}. Longest common subsequence; what is equal far from
// a change is folded into one line that says so.
export function difference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const middle = changed(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  const lines = [...a.slice(0, head).map((text) => ["same", text]), ...middle, ...a.slice(a.length - tail).map((text) => ["same", text])];
  let number = 0;
  return folded(lines.map(([kind, text], at) => ({ kind, text, at, number: kind === "removed" ? "" : (number += 1) })));
}

function changed(a, b) {
  if (a.length + b.length > LINES_COMPARED_MAX) return [...a.map((text) => ["removed", text]), ...b.map((text) => ["added", text])];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push(["same", a[i]]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) { lines.push(["removed", a[i]]); i += 1; }
    else { lines.push(["added", b[j]]); j += 1; }
  }
  return lines;
}

function folded(lines) {
  const isNear = new Uint8Array(lines.length);
  lines.forEach(({ kind }, at) => { if (kind !== "same") isNear.fill(1, Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1); });
  const found = [];
  let skipped = 0;
  const tellSkipped = (at) => { if (skipped) found.push({ kind: "skipped", text: `${skipped} equal lines`, at: `skipped ${at}`, number: "" }); skipped = 0; };
  lines.forEach((line, at) => {
    if (!isNear[at]) { skipped += 1; return; }
    tellSkipped(at);
    found.push(line);
  });
  tellSkipped("last");
  return found;
}

export const numbered = (text) => text.split("\n").map((line, at) => ({ kind: "same", text: line, at, number: at + 1 }));
