/* The editor of a configuration: line numbers, and a check by the server a moment after the last key. */
(() => {
  "use strict";

  const PAUSE_MS = 350;
  const editor = document.querySelector("[data-editor]");
  if (!editor) return;
  const text = editor.querySelector("textarea");
  const gutter = editor.querySelector(".gutter");
  const form = text.form;
  const checkResult = document.getElementById("check-result");
  const checking = document.getElementById("checking");

  function number() {
    const wanted = text.value.split("\n").length;
    while (gutter.childElementCount < wanted) {
      const line = document.createElement("span");
      line.textContent = String(gutter.childElementCount + 1);
      gutter.append(line);
    }
    while (gutter.childElementCount > wanted) gutter.lastElementChild.remove();
    gutter.scrollTop = text.scrollTop;
  }

  function mark() {
    for (const line of gutter.children) line.classList.remove("wrong");
    for (const found of checkResult.querySelectorAll("[data-line]")) {
      gutter.children[Number(found.dataset.line) - 1]?.classList.add("wrong");
    }
    text.setAttribute("aria-invalid", String(checkResult.querySelector(".problems") !== null));
  }

  function goTo(line) {
    const before = text.value.split("\n").slice(0, line - 1).join("\n");
    const at = line > 1 ? before.length + 1 : 0;
    const end = text.value.indexOf("\n", at);
    text.focus();
    text.setSelectionRange(at, end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, (line - 5) * parseFloat(getComputedStyle(text).lineHeight));
  }

  let asked = 0;
  async function check() {
    const mine = ++asked;
    checking.textContent = "checking";
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (typeof value === "string") fields.append(name, value);
    try {
      const response = await fetch(editor.dataset.editor, { method: "POST", body: fields, headers: { Accept: "text/html" } });
      const found = await response.text();
      if (mine !== asked) return;
      if (response.ok) {
        const made = new DOMParser().parseFromString(found, "text/html");
        checkResult.replaceChildren(...made.body.childNodes);
        mark();
      }
      checking.textContent = response.ok ? "" : "not checked";
    } catch {
      if (mine === asked) checking.textContent = "not checked: the master does not answer";
    }
  }

  let waiting = null;
  function soon() {
    clearTimeout(waiting);
    waiting = setTimeout(check, PAUSE_MS);
  }

  text.addEventListener("input", () => { number(); soon(); });
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  // Tab indents in a line and leaves the field after Escape, so that the keyboard is not caught.
  let leaves = false;
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { leaves = true; return; }
    if (event.key === "Tab" && !leaves && !event.shiftKey) {
      event.preventDefault();
      text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
      text.dispatchEvent(new Event("input"));
    }
    if (event.key !== "Tab" && event.key !== "Shift") leaves = false;
  });
  for (const field of form.querySelectorAll("select")) field.addEventListener("change", soon);
  form.querySelector("[data-into]")?.addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    text.value = await file.text();
    event.target.value = "";
    number();
    check();
  });
  checkResult.addEventListener("click", (event) => {
    const found = event.target.closest("[data-line]");
    if (found) goTo(Number(found.dataset.line));
  });
  number();
  mark();
})();
