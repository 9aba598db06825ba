"use strict";

// The operators of a policy's program, for one observation. A tensor is {s: shape, d: numbers}, in
// float32 as in PyTorch; gallery/play.py reads the names in OPERATORS.

const tensor = (s, d) => ({s, d: Float32Array.from(d)});
const count = s => s.reduce((a, b) => a * b, 1);
const range = n => Array.from({length: n}, (_, i) => i);
const dim = (x, n) => n < 0 ? n + x.s.length : n;
const each = f => (x, ...more) => tensor(x.s, Array.from(x.d, v => f(v, ...more)));

/** Flat index in `small`, broadcast to the shape `s`, of the flat index `i` in that. */
function place(i, s, small) {
  let found = 0, step = 1;
  for (let n = s.length - 1; n >= 0; n--) {
    if (small[n] > 1) found += i % s[n] * step;
    step *= small[n];
    i = Math.floor(i / s[n]);
  }
  return found;
}

const both = f => (a, b) => {
  [a, b] = [a, b].map(v => typeof v === "number" ? {s: [], d: [v]} : v);
  const rank = Math.max(a.s.length, b.s.length);
  const [p, q] = [a, b].map(t => [...Array(rank - t.s.length).fill(1), ...t.s]);
  const s = p.map((n, i) => n === 1 ? q[i] : n);
  return tensor(s, range(count(s)).map(i => f(a.d[place(i, s, p)], b.d[place(i, s, q)])));
};

/** Reduces one dimension: `f` takes its numbers. */
function along(x, n, keep, f) {
  n = dim(x, n);
  const inner = count(x.s.slice(n + 1)), size = x.s[n];
  const s = [...x.s.slice(0, n), ...keep ? [1] : [], ...x.s.slice(n + 1)];
  const start = i => Math.floor(i / inner) * inner * size + i % inner;
  return tensor(s, range(count(s)).map(i => f(range(size).map(k => x.d[start(i) + k * inner]))));
}

const total = v => v.reduce((a, b) => a + b, 0);
const over = f => (x, dims, keep) => [...dims].map(n => dim(x, n)).sort((a, b) => b - a)
  .reduce((made, n) => along(made, n, keep, f), x);

const OPERATORS = {
  abs: each(Math.abs),
  add: both((a, b) => a + b),
  addmm: (bias, x, w) => OPERATORS.add(bias, OPERATORS.mm(x, w)),
  alias: x => x,
  amax: over(v => Math.max(...v)),
  argmax: (x, n, keep) => along(x, n, keep, v => v.indexOf(Math.max(...v))),
  clamp: each((v, low, high) => Math.min(Math.max(v, low ?? -Infinity), high ?? Infinity)),
  clone: x => x,
  cos: each(Math.cos),
  div: both((a, b) => a / b),
  elu: each((v, a = 1, b = 1, c = 1) => v > 0 ? b * v : a * b * Math.expm1(c * v)),
  exp: each(Math.exp),
  full_like: each((_, value) => value),
  getitem: (list, n) => list[n],
  hardtanh: each((v, low = -1, high = 1) => Math.min(Math.max(v, low), high)),
  leaky_relu: each((v, slope = 0.01) => v > 0 ? v : slope * v),
  log: each(Math.log),
  maximum: both(Math.max),
  mean: over(v => total(v) / v.length),
  minimum: both(Math.min),
  mm(x, w) {
    const [rows, inner] = x.s, columns = w.s[1], made = new Float64Array(rows * columns);
    for (let r = 0; r < rows; r++)
      for (let k = 0; k < inner; k++)
        for (let c = 0, v = x.d[r * inner + k]; c < columns; c++)
          made[r * columns + c] += v * w.d[k * columns + c];
    return tensor([rows, columns], made);
  },
  mul: both((a, b) => a * b),
  native_layer_norm(x, shape, weight, bias, epsilon) {
    const n = count(shape), made = Array.from(x.d), rows = range(made.length / n);
    for (const row of rows) {
      const v = made.slice(row * n, row * n + n), mean = total(v) / n;
      const scale = 1 / Math.sqrt(total(v.map(a => (a - mean) ** 2)) / n + epsilon);
      v.forEach((a, i) => {
        made[row * n + i] = (a - mean) * scale * (weight?.d[i] ?? 1) + (bias?.d[i] ?? 0);
      });
    }
    return [tensor(x.s, made)];
  },
  neg: each(v => -v),
  permute(x, order) {
    const s = order.map(n => x.s[dim(x, n)]), steps = order.map(n => count(x.s.slice(dim(x, n) + 1)));
    const from = i => s.reduceRight(([k, rest], size, n) =>
      [k + rest % size * steps[n], Math.floor(rest / size)], [0, i])[0];
    return tensor(s, range(x.d.length).map(i => x.d[from(i)]));
  },
  pow: both(Math.pow),
  relu: each(v => Math.max(v, 0)),
  rsqrt: each(v => 1 / Math.sqrt(v)),
  sigmoid: each(v => 1 / (1 + Math.exp(-v))),
  sin: each(Math.sin),
  _softmax(x, n) {
    const powers = OPERATORS.exp(OPERATORS.sub(x, OPERATORS.amax(x, [n], true)));
    return OPERATORS.div(powers, OPERATORS.sum(powers, [n], true));
  },
  split_with_sizes(x, sizes, n = 0) {
    n = dim(x, n);
    const inner = count(x.s.slice(n + 1)), size = x.s[n];
    let start = 0;
    return sizes.map(own => {
      const s = x.s.map((v, i) => i === n ? own : v), first = start;
      start += own;
      return tensor(s, range(count(s)).map(i => {
        const outer = Math.floor(i / (own * inner));
        return x.d[outer * size * inner + first * inner + i % (own * inner)];
      }));
    });
  },
  sqrt: each(Math.sqrt),
  sub: both((a, b) => a - b),
  sum: over(total),
  tanh: each(Math.tanh),
  unsqueeze(x, n) {
    const s = [...x.s];
    s.splice(n < 0 ? n + s.length + 1 : n, 0, 1);
    return {s, d: x.d};
  },
  view(x, shape) {
    const known = count(shape.filter(n => n >= 0));
    return {s: shape.map(n => n < 0 ? x.d.length / known : n), d: x.d};
  },
};

/** A policy as a function from an observation to an action, a number. */
function load({program, weights, action}) {
  const known = new Map(), calls = [];
  for (const [name, [s, text]] of Object.entries(weights)) {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    known.set(name, {s, d: new Float32Array(bytes.buffer)});
  }
  const fill = (value, values) => Array.isArray(value) ? value.map(v => fill(v, values))
    : typeof value === "string" ? values.get(value.slice(1)) : value?.batch ?? value;
  const ready = value => Array.isArray(value) ? value.every(ready)
    : typeof value !== "string" || known.has(value.slice(1));
  for (const [name, operator, args] of program.steps)
    if (ready(args)) known.set(name, OPERATORS[operator](...fill(args, known)));  // once
    else calls.push([name, OPERATORS[operator], args]);
  return observation => {
    const values = new Map(known);
    values.set(program.input, tensor([1, observation.length], observation));
    for (const [name, operator, args] of calls) values.set(name, operator(...fill(args, values)));
    const acted = values.get(program.output).d[0] + (action.start ?? 0);
    return Math.min(Math.max(acted, action.low ?? -Infinity), action.high ?? Infinity);
  };
}

// Classic control as in collect/worlds/classic_control.py: `step` takes a state and an action.
// `draw` returns an SVG, `grab` what a pointer at (x, y) does to the state when it moves.

const clip = (v, low, high) => Math.min(Math.max(v, low), high);
const wrap = v => v - 2 * Math.PI * Math.floor((v + Math.PI) / (2 * Math.PI));
const random = (low, high) => low + (high - low) * Math.random();
const line = (x, y, x2, y2, kind) =>
  `<line x1="${x}" y1="${y}" x2="${x2}" y2="${y2}" class="${kind}"/>`;
const circle = (x, y, r, kind) => `<circle cx="${x}" cy="${y}" r="${r}" class="${kind}"/>`;
const height = x => -(0.45 * Math.sin(3 * x) + 0.55);

const car = (goal, drive) => ({
  rate: 30, box: "-1.3 -1.25 2 1.3", verb: "arrived",
  start: () => [random(-0.6, -0.4), 0],
  observe: s => s,
  step([x, v], action) {
    v = clip(v + drive(action) - 0.0025 * Math.cos(3 * x), -0.07, 0.07);
    x = clip(x + v, -1.2, 0.6);
    return [x, x <= -1.2 ? Math.max(v, 0) : v];
  },
  ended: ([x, v]) => x >= goal && v >= 0,
  grab: () => x => [clip(x, -1.2, goal - 0.05), 0],
  push: ([x, v], way) => [x, clip(v + 0.02 * way, -0.07, 0.07)],
  draw: ([x]) => `<polyline class="thin" points="${range(61).map(i => -1.2 + 0.03 * i)
    .map(at => `${at},${height(at)}`).join(" ")}"/>` + line(goal, height(goal), goal,
    height(goal) - 0.2, "thin") + circle(x, height(x) - 0.05, 0.05, "body"),
});

function acrobot([a, b, p, q], torque) {
  const cos = Math.cos(b), sin = Math.sin(b), d1 = 3.5 + cos, d2 = 1.25 + 0.5 * cos;
  const phi2 = 4.9 * Math.sin(a + b);
  const phi1 = 14.7 * Math.sin(a) + phi2 - (0.5 * q + p) * q * sin;
  const second = (torque + d2 / d1 * phi1 - 0.5 * p * p * sin - phi2) / (1.25 - d2 * d2 / d1);
  return [p, q, -(d2 * second + phi1) / d1, second];
}

const WORLDS = {
  "CartPole-v1": {
    rate: 50, box: "-2.6 -1.25 5.2 1.6", verb: "fell",
    start: () => range(4).map(() => random(-0.05, 0.05)),
    observe: s => s,
    step([x, v, angle, speed], action) {
      const cos = Math.cos(angle), sin = Math.sin(angle);
      const push = (20 * action - 10 + 0.05 * speed * speed * sin) / 1.1;
      const turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1));
      const gain = push - 0.05 * turn * cos / 1.1;
      return [x + 0.02 * v, v + 0.02 * gain, angle + 0.02 * speed, speed + 0.02 * turn];
    },
    ended: ([x, , angle]) => Math.abs(x) > 2.4 || Math.abs(angle) > Math.PI / 15,
    grab: ([x, , angle], _, y) => y > -0.2 ? at => [clip(at, -2.2, 2.2), 0, angle, 0]
      : (at, up) => [x, 0, clip(Math.atan2(at - x, -up), -0.19, 0.19), 0],
    push: ([x, v, angle, speed], way) => [x, v, angle, speed + 0.5 * way],
    draw: ([x, , angle]) => line(-2.4, 0.12, 2.4, 0.12, "thin")
      + `<rect x="${x - 0.25}" y="-0.12" width="0.5" height="0.24" rx="0.04" class="body"/>`
      + line(x, 0, x + Math.sin(angle), -Math.cos(angle), "rod") + circle(x, 0, 0.04, "joint"),
  },
  "MountainCar-v0": car(0.5, action => 0.001 * (action - 1)),
  "MountainCarContinuous-v0": car(0.45, action => 0.0015 * clip(action, -1, 1)),
  "Pendulum-v1": {
    rate: 20, box: "-1.25 -1.25 2.5 2.5", verb: "",
    start: () => [random(-Math.PI, Math.PI), random(-1, 1)],
    observe: ([angle, speed]) => [Math.cos(angle), Math.sin(angle), speed],
    step([angle, speed], action) {
      const torque = Math.fround(3 * clip(action, -2, 2));  // float32 as the action
      speed = clip(speed + 0.05 * (15 * Math.sin(angle) + torque), -8, 8);
      return [angle + 0.05 * speed, speed];
    },
    ended: () => false,
    grab: () => (x, y) => [Math.atan2(-x, -y), 0],
    push: ([angle, speed], way) => [angle, clip(speed - 3 * way, -8, 8)],
    draw: ([angle]) => line(0, 0, -Math.sin(angle), -Math.cos(angle), "rod")
      + circle(0, 0, 0.05, "joint"),
  },
  "Acrobot-v1": {
    rate: 15, box: "-2.2 -2.2 4.4 4.4", verb: "arrived",
    start: () => range(4).map(() => random(-0.1, 0.1)),
    observe: ([a, b, p, q]) => [Math.cos(a), Math.sin(a), Math.cos(b), Math.sin(b), p, q],
    step(s, action) {
      const at = (k, h) => acrobot(s.map((v, i) => v + h * k[i]), action - 1);
      const k1 = acrobot(s, action - 1), k2 = at(k1, 0.1), k3 = at(k2, 0.1), k4 = at(k3, 0.2);
      const [a, b, p, q] = s.map((v, i) => v + 0.2 / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]));
      return [wrap(a), wrap(b), clip(p, -4 * Math.PI, 4 * Math.PI), clip(q, -9 * Math.PI, 9 * Math.PI)];
    },
    ended: ([a, b]) => -Math.cos(a) - Math.cos(a + b) > 1,
    grab: ([a, b], x, y) => Math.hypot(x, y) < 1.2 ? (at, down) => [Math.atan2(at, down), b, 0, 0]
      : (at, down) => [a, wrap(Math.atan2(at - Math.sin(a), down - Math.cos(a)) - a), 0, 0],
    push: ([a, b, p, q], way) => [a, b, p + way, q],
    draw([a, b]) {
      const x = Math.sin(a), y = Math.cos(a);
      return line(-2, -1, 2, -1, "thin") + line(0, 0, x, y, "rod")
        + line(x, y, x + Math.sin(a + b), y + Math.cos(a + b), "rod")
        + circle(0, 0, 0.08, "joint") + circle(x, y, 0.08, "joint");
    },
  },
};

// The page: one world, whose policy can be changed while it acts.

const data = JSON.parse(document.getElementById("play-data").textContent);
const policies = data.policies.map(load), world = WORLDS[data.world];
const [svg, told, choice, stop] = ["svg", "output", "select", "[data-do=stop]"]
  .map(name => document.querySelector(`#play ${name}`));
const play = {
  state: world.start(), steps: 0, action: 0, held: null, wait: 0,
  running: !matchMedia("(prefers-reduced-motion: reduce)").matches,
  /** Takes one action, repeated as in training. */
  step() {
    if (this.wait && --this.wait === 0) this.restart();
    if (this.wait) return;
    this.action = policies[choice.selectedIndex](world.observe(this.state));
    for (let n = 0; n < data.frame_skip && !world.ended(this.state); n++)
      this.state = world.step(this.state, this.action);
    this.steps++;
    if (world.ended(this.state)) this.wait = world.rate;  // a second
  },
  restart() {
    Object.assign(this, {state: world.start(), steps: 0, wait: 0});
  },
  draw() {
    svg.innerHTML = world.draw(this.state);
    const what = this.wait ? ` · ${world.verb}` : "";
    told.textContent = `step ${this.steps} · action ${+this.action.toFixed(2)}${what}`;
    stop.textContent = this.running ? "Pause" : "Go on";
  },
  do(what) {
    if (what === "stop") this.running = !this.running;
    else if (what === "restart") this.restart();
    else if (!this.wait) this.state = world.push(this.state, what === "left" ? -1 : 1);
    this.draw();
  },
};

const at = event => {
  const point = new DOMPoint(event.clientX, event.clientY);
  const {x, y} = point.matrixTransform(svg.getScreenCTM().inverse());
  return [x, y];
};
svg.setAttribute("viewBox", world.box);
svg.addEventListener("pointerdown", event => {
  if (play.wait) play.restart();
  play.held = world.grab(play.state, ...at(event));
});
addEventListener("pointermove", event => {
  if (!play.held) return;
  play.state = play.held(...at(event));
  play.draw();
});
for (const name of ["pointerup", "pointercancel"])
  addEventListener(name, () => { play.held = null; });
document.getElementById("play").addEventListener("click", event => {
  if (event.target.dataset.do) play.do(event.target.dataset.do);
});
const KEYS = {ArrowLeft: "left", ArrowRight: "right", " ": "stop", r: "restart"};
svg.addEventListener("keydown", event => {
  if (!KEYS[event.key]) return;
  event.preventDefault();
  play.do(KEYS[event.key]);
});
let before = 0, owed = 0;
requestAnimationFrame(function frame(now) {
  owed += Math.min(now - before, 100) * world.rate / 1000;
  before = now;
  for (; owed >= 1; owed--) if (play.running && !play.held) play.step();
  play.draw();
  requestAnimationFrame(frame);
});
