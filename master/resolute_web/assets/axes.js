/* A range of an axis is chosen by dragging along it. It goes into the fields of the form below, which say and do the same. */
(() => {
  "use strict";

  const CLICK_PX = 3;

  function heightAt(handle, event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(handle.getScreenCTM().inverse());
    const top = handle.y.baseVal.value;
    return Math.min(Math.max(point.y, top), top + handle.height.baseVal.value);
  }

  function valueAt(handle, y) {
    const share = (y - handle.y.baseVal.value) / handle.height.baseVal.value;
    const place = "downward" in handle.dataset ? share : 1 - share;
    const low = Number(handle.dataset.low), high = Number(handle.dataset.high);
    if ("log" in handle.dataset) return low * (high / low) ** place;
    return low + place * (high - low);
  }

  function choose(handle, begin, end) {
    const form = document.querySelector("form.axes");
    const fields = ["from:", "to:"].map((kind) => form?.elements.namedItem(kind + handle.dataset.key));
    if (!fields[0] || !fields[1]) return;
    const values = [valueAt(handle, begin), valueAt(handle, end)].sort((a, b) => a - b);
    const dragged = Math.abs(end - begin) >= CLICK_PX;
    fields.forEach((field, place) => { field.value = dragged ? Number(values[place].toPrecision(4)) : ""; });
    form.requestSubmit();
  }

  document.addEventListener("pointerdown", (event) => {
    const handle = event.target.closest?.(".parallel .handle");
    if (!handle || event.button !== 0) return;
    event.preventDefault();
    const begin = heightAt(handle, event);
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    mark.setAttribute("class", "chosen");
    mark.setAttribute("x", handle.x.baseVal.value + handle.width.baseVal.value / 2 - 6);
    mark.setAttribute("width", 12);
    handle.before(mark);
    handle.setPointerCapture(event.pointerId);
    const move = (moved) => {
      const now = heightAt(handle, moved);
      mark.setAttribute("y", Math.min(begin, now));
      mark.setAttribute("height", Math.abs(now - begin));
    };
    const over = (ended) => {
      handle.removeEventListener("pointermove", move);
      handle.removeEventListener("pointerup", over);
      handle.removeEventListener("pointercancel", over);
      mark.remove();
      if (ended.type === "pointerup") choose(handle, begin, heightAt(handle, ended));
    };
    handle.addEventListener("pointermove", move);
    handle.addEventListener("pointerup", over);
    handle.addEventListener("pointercancel", over);
  });
})();
