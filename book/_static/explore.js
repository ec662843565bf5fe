// The page that a reader moves: an equilibrium by fixed-point iterations, four models beside one another, bounds around two states.
// Plain JavaScript and SVG, no dependency. Without it the page shows a picture.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const WIDTH = 560, HEIGHT = 300, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 40;
  const ABSOLUTE = 3e-6, RELATIVE = 1e-6, LIMIT = 400;

  const node = (name, attributes = {}, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, a, j) => sum + a * vector[j], 0));
  const relu = (v) => v.map((a) => Math.max(a, 0));
  const plus = (a, b) => a.map((value, i) => value + b[i]);
  const short = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString());

  // Fixed-point iterations x <- max(A x + B u, 0) from 0: every state, and how far each step moved the state.
  const iterate = (A, B, u, count = LIMIT) => {
    const input = times(B, u);
    let x = input.map(() => 0);
    const steps = [];
    for (let t = 0; t < count; t += 1) {
      const next = relu(plus(times(A, x), input));
      const moved = Math.max(...next.map((value, i) => Math.abs(value - x[i])));
      x = next;
      steps.push({ moved, size: Math.max(...x.map(Math.abs)) });
      if (moved <= 1e-12 * Math.max(1, steps[t].size)) break;
    }
    return { x, steps };
  };
  const implicit = (m, u) => plus(times(m.C, iterate(m.A, m.B, u).x), times(m.D, u));
  const mlp = (layers, u) => layers.reduce((h, layer, k) => {
    const z = times(layer.W, h);
    const y = layer.b ? plus(z, layer.b) : z;
    return k < layers.length - 1 ? relu(y) : y;
  }, u);

  // An empty plot with ticks; x and y map values to places.
  const plot = (svg, [x0, x1], [y0, y1], labels) => {
    svg.replaceChildren();
    const x = (value) => LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - ((value - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
    const ticks = (a, b) => {
      const rough = (b - a) / 5, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
      const found = [];
      for (let value = Math.ceil(a / step) * step; value <= b + 1e-9 * step; value += step) found.push(Math.abs(value) < 1e-12 ? 0 : value);
      return found;
    };
    for (const value of ticks(x0, x1)) {
      svg.append(node("line", { x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM, class: "grid" }));
      svg.append(node("text", { x: x(value), y: HEIGHT - BOTTOM + 16, class: "tick", "text-anchor": "middle" }, short(value)));
    }
    for (const value of labels.log ? ticks(y0, y1).filter(Number.isInteger) : ticks(y0, y1)) {
      svg.append(node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
      const text = labels.log ? `1e${value}` : short(value);
      svg.append(node("text", { x: LEFT - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, text));
    }
    svg.append(node("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, class: "label", "text-anchor": "middle" }, labels.x));
    const middle = (TOP + HEIGHT - BOTTOM) / 2;
    svg.append(node("text", { x: 14, y: middle, class: "label", "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, labels.y));
    return { x, y };
  };
  const curve = (svg, place, points, kind) =>
    svg.append(node("polyline", { points: points.map(([a, b]) => `${place.x(a).toFixed(1)},${place.y(b).toFixed(1)}`).join(" "), class: `curve ${kind}` }));

  const start = (root, data) => {
    const find = (name) => root.querySelector(`[data-part="${name}"]`);
    const controls = { kappa: find("kappa"), shift: find("shift"), input: find("input"), radius: find("radius") };
    controls.kappa.max = data.kappas.length - 1;
    controls.radius.max = data.bounds.radii.length - 1;
    const models = [
      ["implicit", "implicit model", implicit],
      ["mlp", "MLP, as narrow as its input", (m, u) => mlp(data.mlp, u)],
      ["wide", "MLP, twice as wide", (m, u) => mlp(data.wide, u)],
      ["bias-free", "the wide one without biases", (m, u) => mlp(data.bias_free, u)],
      ["linear", "linear map", (m, u) => plus(times(data.linear.W, u), data.linear.b)],
    ];
    const input = (t) => data.direction.map((v) => t * v);

    const drawModels = () => {
      const model = data.implicit[Number(controls.kappa.value)];
      const half = data.half_width + Number(controls.shift.value);
      const t = half * Number(controls.input.value);
      find("kappa-value").textContent = data.kappas[Number(controls.kappa.value)];
      find("shift-value").textContent = short(half - data.half_width);
      find("input-value").textContent = short(t);
      const svg = find("predictions");
      const place = plot(svg, [-half, half], [-1.1 * half, 1.1 * half], { x: "position t on the line of inputs u = t v", y: "prediction of the first number" });
      svg.insertBefore(node("rect", { x: place.x(-data.half_width), y: TOP, height: HEIGHT - TOP - BOTTOM, class: "range",
        width: place.x(data.half_width) - place.x(-data.half_width) }), svg.firstChild);
      const grid = Array.from({ length: 121 }, (_, i) => -half + (2 * half * i) / 120);
      const rows = [];
      for (const [kind, name, predict] of models) {
        const clipped = (value) => Math.max(-1.1 * half, Math.min(1.1 * half, value));
        curve(svg, place, grid.map((value) => [value, clipped(predict(model, input(value))[0])]), kind);
        const y = predict(model, input(t));
        const off = Math.max(...y.map((value, i) => Math.abs(value - t * data.direction[i])));
        svg.append(node("circle", { cx: place.x(t), cy: place.y(clipped(y[0])), r: 4, class: `mark ${kind}` }));
        rows.push(`<tr><th scope="row"><span class="key ${kind}"></span>${name}</th><td>${short(y[0])}</td><td>${off < 1e-3 ? off.toExponential(0) : short(off)}</td></tr>`);
      }
      find("table").innerHTML = `<thead><tr><th scope="col">model</th><th scope="col">first number</th><th scope="col">largest error of the four</th></tr></thead><tbody>${rows.join("")}</tbody>`;

      const { x, steps } = iterate(model.A, model.B, input(t));
      const logs = steps.map((step, k) => [k + 1, Math.log10(Math.max(step.moved, 1e-13))]);
      const top = Math.max(1, Math.ceil(Math.max(...logs.map((p) => p[1]))));
      const panel = find("iterations");
      const spot = plot(panel, [0, Math.max(10, steps.length + 1)], [-12, top], { x: "iteration", y: "largest move of the state", log: true });
      curve(panel, spot, [[0, Math.log10(ABSOLUTE)], [Math.max(10, steps.length + 1), Math.log10(ABSOLUTE)]], "threshold");
      curve(panel, spot, logs, "implicit");
      for (const [a, b] of logs) panel.append(node("circle", { cx: spot.x(a), cy: spot.y(b), r: 2.5, class: "mark implicit" }));
      const until = (enough) => { const k = steps.findIndex(enough); return k < 0 ? `more than ${steps.length}` : k + 1; };
      find("depth").textContent = `Iterations until no entry moves by more than 3e-6: ${until((s) => s.moved <= ABSOLUTE)}; `
        + `until none moves by more than a millionth of the state: ${until((s) => s.moved <= RELATIVE * s.size)}.`;
      const bars = find("state");
      const largest = Math.max(1e-9, ...x);
      const at = plot(bars, [0.5, x.length + 0.5], [0, 1.1 * largest], { x: "state", y: "value at the equilibrium" });
      x.forEach((value, i) => bars.append(node("rect", { x: at.x(i + 1) - 14, width: 28, y: at.y(value), height: at.y(0) - at.y(value), class: "bar" })));
    };

    const drawBounds = () => {
      const { A, B, centre, radii, boxes } = data.bounds;
      const k = Number(controls.radius.value), radius = radii[k];
      find("radius-value").textContent = short(radius);
      const last = Object.values(boxes).map((list) => list[k]);
      const ends = [0, 1].map((i) => {
        const [low, high] = [Math.min(...last.map((b) => b[0][i])), Math.max(...last.map((b) => b[1][i]))];
        const room = 0.08 * (high - low) + 0.05;
        return [low - room, high + room];
      });
      const svg = find("bounds");
      const place = plot(svg, ends[0], ends[1], { x: "first state", y: "second state" });
      const side = 15;
      for (let i = 0; i <= side; i += 1) {
        for (let j = 0; j <= side; j += 1) {
          const u = [centre[0] + radius * ((2 * i) / side - 1), centre[1] + radius * ((2 * j) / side - 1)];
          const { x } = iterate(A, B, u, 200);
          svg.append(node("circle", { cx: place.x(x[0]), cy: place.y(x[1]), r: 1.6, class: "sample" }));
        }
      }
      const rows = [];
      for (const [method, list] of Object.entries(boxes)) {
        const [[a, b], [c, d]] = list[k];
        svg.append(node("rect", { x: place.x(a), y: place.y(d), width: Math.max(1, place.x(c) - place.x(a)), height: Math.max(1, place.y(b) - place.y(d)), class: `box ${method}` }));
        rows.push(`<tr><th scope="row"><span class="key ${method}"></span>${method}</th><td>${short(c - a)}</td><td>${short(d - b)}</td></tr>`);
      }
      find("widths").innerHTML = `<thead><tr><th scope="col">bound</th><th scope="col">width, first state</th><th scope="col">second</th></tr></thead><tbody>${rows.join("")}</tbody>`;
    };

    for (const name of ["kappa", "shift", "input"]) controls[name].addEventListener("input", drawModels);
    controls.radius.addEventListener("input", drawBounds);
    drawModels();
    drawBounds();
    root.hidden = false;
    for (const still of document.querySelectorAll(".explore-still")) still.hidden = true;
  };

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.querySelector(".explore");
    const data = document.getElementById("explore-data");
    if (root && data) start(root, JSON.parse(data.textContent));
  });
})();
