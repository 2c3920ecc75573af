"use strict";
// Search and folding. The page is complete without it: the form is shown only if this runs.
{
  const form = document.querySelector("form");
  const field = form.querySelector("input");
  const result = form.querySelector("output");
  const blocks = [...document.querySelectorAll("main .turn, main .mark")];
  const turns = blocks.filter((block) => block.matches(".turn"));
  const sections = [...document.querySelectorAll("main > section")];
  const open = new Set(turns.filter((turn) => turn.open));
  let texts = null;
  let waiting = 0;

  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    texts ??= blocks.map((block) => block.textContent.toLowerCase());
    let found = 0;
    blocks.forEach((block, place) => {
      const matches = words.every((word) => texts[place].includes(word));
      block.classList.toggle("gone", !matches);
      found += matches && words.length > 0;
      if (block.matches(".turn")) {
        block.open = words.length ? matches && found <= 20 : open.has(block);
      }
    });
    sections.forEach((section) => {
      section.classList.toggle("gone", !section.querySelector(".turn:not(.gone), .mark:not(.gone)"));
    });
    result.value = words.length ? `${found.toLocaleString("en")} found` : "";
  };
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    for (let box = target; box; box = box.parentElement) {
      if (box.tagName === "DETAILS") box.open = true;
    }
    target?.scrollIntoView();
  };

  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 150);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("button").addEventListener("click", (event) => {
    const fold = event.target.textContent === "Fold all";
    turns.forEach((turn) => { turn.open = !fold; });
    event.target.textContent = fold ? "Unfold all" : "Fold all";
  });
  addEventListener("hashchange", reveal);
  form.hidden = false;
  if (location.hash) reveal();
}
