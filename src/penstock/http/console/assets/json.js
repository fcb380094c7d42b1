// JSON for people: integers keep all their digits, trees fold, previews are short.

const BRANCH_ITEMS_MAX = 500;

// A number that JavaScript would round.
class Exact {
  constructor(text) { this.text = text; }
  toJSON() { return JSON.rawJSON ? JSON.rawJSON(this.text) : this.text; }
}

export const parseExact = (text) => JSON.parse(text, (key, value, context) => {
  if (typeof value === "number" && context?.source && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source)) {
    return new Exact(context.source);
  }
  return value;
});

export const stringify = (value, indent) => JSON.stringify(value, null, indent);

export function preview(part, charactersMax = 240) {
  if (part.encoding === "null") return "";
  const text = typeof part.value === "string" ? part.value : stringify(part.value);
  return text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text;
}

export function wholeText(part) {
  if (part.encoding === "null") return "";
  return typeof part.value === "string" ? part.value : stringify(part.value, 2);
}

const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

export function jsonTree(value) {
  const root = element("div", "json");
  root.append(node(value, null, 0));
  return root;
}

function node(value, key, depth) {
  const line = document.createDocumentFragment();
  if (key !== null) line.append(element("span", "json-key", key), ": ");
  if (value === null || typeof value !== "object" || value instanceof Exact) {
    const kind = value === null ? "null" : value instanceof Exact ? "number" : typeof value;
    const text = value instanceof Exact ? value.text : typeof value === "string" && depth > 0 ? JSON.stringify(value) : String(value);
    line.append(element("span", `json-${kind}`, text));
    const leaf = element("div", "json-leaf");
    leaf.append(line);
    return leaf;
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((one, at) => [String(at), one]) : Object.entries(value);
  const [open, close] = isList ? ["[", "]"] : ["{", "}"];
  if (!entries.length) {
    const leaf = element("div", "json-leaf");
    line.append(open + close);
    leaf.append(line);
    return leaf;
  }
  const branch = element("details");
  branch.open = depth < 4 && entries.length <= 100;
  const summary = element("summary");
  line.append(open, element("span", "json-count", `${entries.length} ${isList ? "items" : "fields"}`), element("span", "json-folded", close));
  summary.append(line);
  const inside = element("div", "json-inside");
  // What is folded is built when it is unfolded: a value of megabytes opens at once.
  const build = () => {
    if (inside.childNodes.length) return;
    for (const [name, one] of entries.slice(0, BRANCH_ITEMS_MAX)) inside.append(node(one, name, depth + 1));
    if (entries.length > BRANCH_ITEMS_MAX) inside.append(element("div", "muted", `${entries.length - BRANCH_ITEMS_MAX} more: copy the value to see them.`));
  };
  if (branch.open) build();
  else branch.addEventListener("toggle", build, { once: true });
  branch.append(summary, inside, element("div", "json-close", close));
  return branch;
}
