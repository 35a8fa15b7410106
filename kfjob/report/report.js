"use strict";
for (const svg of document.querySelectorAll("svg.chart")) {
  const lines = Object.entries(JSON.parse(svg.dataset.points));
  const cursor = svg.querySelector(".cursor"), out = svg.parentElement.querySelector("output");
  const dots = lines.map(() => svg.appendChild(document.createElementNS(svg.namespaceURI, "circle")));
  for (const dot of dots) { dot.setAttribute("r", 3.5); dot.setAttribute("class", "dot"); dot.style.visibility = "hidden"; }
  const show = (on) => {
    for (const one of [cursor, ...dots]) one.style.visibility = on ? "visible" : "hidden";
    if (!on) out.textContent = out.dataset.rest;
  };
  svg.addEventListener("pointermove", (event) => {
    const at = (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * svg.viewBox.baseVal.width;
    const said = [];
    lines.forEach(([name, points], index) => {
      if (!points.length) return;
      const near = points.reduce((best, one) => Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best);
      dots[index].setAttribute("cx", near[0]); dots[index].setAttribute("cy", near[1]);
      if (!said.length) { said.push("step " + near[2]); cursor.setAttribute("x1", near[0]); cursor.setAttribute("x2", near[0]); }
      said.push(name + " " + near[3]);
    });
    out.textContent = said.join(" \u00b7 ");
    show(true);
  });
  svg.addEventListener("pointerleave", () => show(false));
}
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
