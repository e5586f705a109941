"use strict";
// Everything that models wrote goes through textContent: `put` is the only way that anything reaches the page.
const put = (name, classes, ...inside) => {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.append(...inside.filter((part) => part !== null && part !== ""));
  return made;
};
const SIGNS = { correct: "✓", visible: "◐", wrong: "✕", error: "!", mixed: "≈", none: "·" };
const markOf = (run) => (run.error ? "error" : run.correct ? "correct" : run.visible_solved ? "visible" : "wrong");
const wordOf = (verdict) => (verdict || "not run").replaceAll("_", " ");
const short = (number) => (number === null ? "–" : Number(number.toPrecision(3)).toString());

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function open(details) {
  const place = details.querySelector(".runs");
  if (!place || place.childElementCount) return;
  place.append(put("p", "small", "unpacking…"));
  try {
    showRuns(place, await unpacked(details.querySelector("script").textContent));
  } catch (error) {
    place.replaceChildren(put("p", "small", `This browser cannot unpack the trees: ${error}`));
  }
}

function showRuns(place, runs) {
  const tabs = put("div", "tabs");
  const view = put("div", "run");
  view.setAttribute("role", "tabpanel");
  tabs.setAttribute("role", "tablist");
  const seeds = new Set(runs.map((run) => run.seed)).size > 1;
  runs.forEach((run, index) => {
    const mark = markOf(run);
    const tab = put("button", "", put("span", `mark ${mark}`, SIGNS[mark]), run.method + (seeds ? ` · seed ${run.seed}` : ""));
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => {
      for (const other of tabs.children) other.setAttribute("aria-selected", other === tab);
      showRun(view, run);
    });
    tabs.append(tab);
  });
  place.replaceChildren(tabs, view);
  const best = Math.max(...runs.map(interest));
  tabs.children[runs.findIndex((run) => interest(run) === best)].click();
}

// One opens a problem for the run that learned most, else for the largest tree.
const interest = (run) => 1000 * run.updates + run.tree.length;

function showRun(view, run) {
  const panel = put("div", "panel");
  const show = (button, index) => {
    for (const other of view.querySelectorAll(".thought")) other.setAttribute("aria-pressed", other === button);
    panel.replaceChildren(...(index === 0 ? answerOf(run) : thoughtOf(run, index)));
    if (button && getComputedStyle(panel).position === "static" && button.dataset.asked) {
      panel.scrollIntoView({ block: "nearest" });
    }
  };
  const tree = put("ul", "tree");
  if (run.tree.length) tree.append(branch(run, 0, childrenOf(run.tree), new Set(run.committed_path), show));
  else tree.append(put("li", "small", "This method keeps no tree."));
  view.replaceChildren(put("p", "facts", factsOf(run)), tree, panel);
  show(view.querySelector(".thought"), 0);
}

const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

function factsOf(run) {
  const graded = run.error
    ? run.error
    : `${run.visible_passed}/${run.visible_total} visible and ${run.hidden_passed}/${run.hidden_total} hidden tests` +
      (run.correct ? ": right" : `: ${wordOf(run.verdict)}`);
  const official = run.official === null ? "" : ` · official grader: ${run.official ? "right" : "wrong"}`;
  return (
    `${graded}${official} · ended by ${wordOf(run.stop_reason)} after ${counted(run.iterations, "iteration")}, ` +
    `${counted(run.executed, "program")}, ${counted(run.updates, "update")}, ${counted(run.tokens, "token")}, ${short(run.seconds)} s`
  );
}

function childrenOf(tree) {
  const children = tree.map(() => []);
  tree.forEach((node, index) => {
    if (node.parent !== null) children[node.parent].push(index);
  });
  return children;
}

// Under a node, by iteration: what was learned from its thoughts, the thoughts, and the greedy commit that followed.
function branch(run, index, children, path, show) {
  const item = put("li", path.has(index) ? "onpath" : "", thoughtButton(run, index, show));
  if (!children[index].length) return item;
  const inner = put("ul", "");
  const iterations = [...new Set(children[index].map((child) => run.tree[child].iteration))].sort((a, b) => a - b);
  for (const iteration of iterations) {
    const own = children[index].filter((child) => run.tree[child].iteration === iteration);
    const step = run.curve.find((row) => row.iteration === iteration);
    inner.append(step ? updateOf(run, step) : put("li", "update", `iteration ${iteration}`));
    for (const child of own) inner.append(branch(run, child, children, path, show));
  }
  item.append(inner);
  return item;
}

function updateOf(run, step) {
  const before = run.curve.filter((row) => row.iteration < step.iteration).at(-1);
  const moved = step.version > (before ? before.version : 0);
  if (!moved) {
    return put("li", "update", step.skipped ? `iteration ${step.iteration}: no update, ${step.skipped}` : `iteration ${step.iteration}`);
  }
  const figures = [["KL", step.kl], ["gradient", step.grad_norm], ["adapter", step.adapter_norm]];
  const text = figures.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  return put("li", "update moved", `iteration ${step.iteration}: ↻ update to version ${step.version}${text ? ` (${text})` : ""}`);
}

function thoughtButton(run, index, show) {
  const node = run.tree[index];
  const program = node.program === null ? null : run.programs[node.program];
  const reward = node.reward ?? 0;
  const kind = index === 0 ? "root" : reward >= 1 ? "full" : reward > 0 ? "some" : "";
  const dot = put("span", `dot ${kind} ${node.committed ? "greedy" : ""}`);
  dot.style.setProperty("--fill", `${Math.round(100 * reward)}%`);
  const word = index === 0 ? "the problem" : program ? wordOf(program.verdict) : "thought";
  const tests = program && program.total ? `${program.passed}/${program.total}` : "";
  const said = [tests, `visits ${node.visits}`, `Q ${short(node.value)}`, node.committed ? "commit" : ""];
  const button = put("button", "thought", dot, put("span", "word", word), put("span", "of", said.filter(Boolean).join(" · ")));
  button.type = "button";
  button.dataset.node = index;
  button.addEventListener("click", () => {
    button.dataset.asked = "yes";
    show(button, index);
  });
  return button;
}

function answerOf(run) {
  return [put("h4", "", "The answer"), ...run.warnings.map((text) => put("p", "small", text)), code(run.program)];
}

function thoughtOf(run, index) {
  const node = run.tree[index];
  const program = run.programs[node.program] || { text: "", verdict: "", feedback: "", passed: null, total: null };
  const tests = program.total ? `, ${program.passed} of ${program.total} visible tests` : "";
  const how = node.committed ? "decoded greedily and committed," : "sampled";
  const parts = [
    put("h4", "", `Thought ${index}: ${wordOf(program.verdict)}${tests}`),
    put("p", "label", `${how} in iteration ${node.iteration} · reward ${short(node.reward)} · prior ${short(node.prior)} · ` +
      `visits ${node.visits} · Q ${short(node.value)}`),
    code(program.text),
  ];
  if (program.feedback) parts.push(put("p", "label", "What the model was told"), code(program.feedback));
  return parts;
}

const code = (text) => put("pre", "", text || "nothing was written");

for (const details of document.querySelectorAll(".problem")) {
  details.addEventListener("toggle", () => details.open && open(details));
}

const filter = document.getElementById("filter");
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const [arm, mark] = words;
  let shown = 0;
  for (const details of document.querySelectorAll(".problem")) {
    const text = details.dataset.words.toLowerCase();
    const known = words.every((word) => text.includes(word)) && !(mark in SIGNS);
    details.hidden = !(known || (words.length === 2 && ` ${text} `.includes(` ${arm}=${mark} `)));
    shown += !details.hidden;
  }
  document.getElementById("count").textContent = words.length ? `${shown} shown` : "";
});
