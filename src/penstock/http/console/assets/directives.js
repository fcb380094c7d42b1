// Alpine directives of our own: dialogs, JSON as a tree, pieces of text.
import Alpine from "./vendor/alpine-csp-3.17.4.js";
import { jsonTree } from "./json.js";

// x-dialog="is_open": a modal <dialog> that is open while the name is true, and sets it to false when it is closed.
Alpine.directive("dialog", (element, { expression }, { effect, evaluate, evaluateLater, cleanup }) => {
  const wanted = evaluateLater(expression);
  effect(() => wanted((isOpen) => {
    if (isOpen && !element.open) {
      element.showModal();
      element.querySelector("[data-first]")?.focus();
    } else if (!isOpen && element.open) element.close();
  }));
  const closed = () => evaluate(`${expression} = false`);
  const besides = (event) => { if (event.target === element) element.close(); };
  element.addEventListener("close", closed);
  element.addEventListener("mousedown", besides);
  cleanup(() => { element.removeEventListener("close", closed); element.removeEventListener("mousedown", besides); });
});

// x-json="value": a tree whose branches fold.
Alpine.directive("json", (element, { expression }, { effect, evaluateLater }) => {
  const wanted = evaluateLater(expression);
  effect(() => wanted((value) => element.replaceChildren(jsonTree(Alpine.raw(value)))));
});

// x-prose="text": text in which `names` stand in backticks.
Alpine.directive("prose", (element, { expression }, { effect, evaluateLater }) => {
  const wanted = evaluateLater(expression);
  effect(() => wanted((text) => element.replaceChildren(...(text ?? "").split("`").map((piece, at) => {
    if (at % 2 === 0) return piece;
    const code = document.createElement("code");
    code.textContent = piece;
    return code;
  }))));
});

// x-share="0.4": how full a bar is.
Alpine.directive("share", (element, { expression }, { effect, evaluateLater }) => {
  const wanted = evaluateLater(expression);
  effect(() => wanted((share) => element.style.setProperty("--share", `${Math.round(1000 * Math.min(1, Math.max(0, share || 0))) / 10}%`)));
});

// x-focus: the field is ready to be written in when it appears.
Alpine.directive("focus", (element) => { requestAnimationFrame(() => element.focus()); });
