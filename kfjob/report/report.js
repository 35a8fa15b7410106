"use strict";
for (const svg of document.querySelectorAll("svg.chart")) {
  const curves = Object.entries(JSON.parse(svg.dataset.points));
  const cursor = svg.querySelector(".cursor"), output = svg.parentElement.querySelector("output");
  const dots = curves.map(() => svg.appendChild(document.createElementNS(svg.namespaceURI, "circle")));
  for (const dot of dots) { dot.setAttribute("r", 3.5); dot.setAttribute("class", "dot"); dot.style.visibility = "hidden"; }
  const show = (visible) => {
    for (const element of [cursor, ...dots]) element.style.visibility = visible ? "visible" : "hidden";
    if (!visible) output.textContent = output.dataset.rest;
  };
  svg.addEventListener("pointermove", (event) => {
    const x = (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * svg.viewBox.baseVal.width;
    const values = [];
    curves.forEach(([name, points], index) => {
      if (!points.length) return;
      const [left, top, step, value] = points.reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
      dots[index].setAttribute("cx", left); dots[index].setAttribute("cy", top);
      if (!values.length) { values.push("step " + step); cursor.setAttribute("x1", left); cursor.setAttribute("x2", left); }
      values.push(name + " " + value);
    });
    output.textContent = values.join(" \u00b7 ");
    show(true);
  });
  svg.addEventListener("pointerleave", () => show(false));
}
addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });
