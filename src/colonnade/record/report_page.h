// The constant parts of report.html: style sheet and hover script.
#pragma once

#include <string_view>

namespace colonnade::record {

inline constexpr std::string_view kReportStyle = R"css(
:root{color-scheme:light dark;--page:#f9f9f7;--card:#fcfcfb;--ink:#0b0b0b;--ink2:#52514e;--grid:#e1e0d9;--axis:#c3c2b7;
--s1:#2a78d6;--s2:#eb6834;--s3:#1baf7a;--s4:#eda100;--s5:#4a3aa7;--s6:#e34948;--rest:#c3c2b7}
@media (prefers-color-scheme:dark){:root{--page:#0d0d0d;--card:#1a1a19;--ink:#fff;--ink2:#c3c2b7;--grid:#2c2c2a;--axis:#52514e;
--s1:#3987e5;--s2:#d95926;--s3:#199e70;--s4:#c98500;--s5:#9085e9;--s6:#e66767;--rest:#52514e}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:30px 0 10px}
.facts{color:var(--ink2);margin:0 0 18px}.facts span{margin-right:18px;white-space:nowrap}
.tiles,.charts{display:grid;gap:14px}
.tiles{grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));margin-top:14px}
.tile,figure,.card{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px;margin:0}
.tile b{display:block;font-size:23px;font-weight:600}.tile span{color:var(--ink2);font-size:13px}
figure{position:relative}figcaption{font-weight:600;margin-bottom:2px}
.none{color:var(--ink2)}
.legend{font-size:13px;color:var(--ink2)}.legend span{margin-right:16px;white-space:nowrap}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
svg.chart{width:100%;height:auto;display:block}
.chart .grid{stroke:var(--grid)}.chart .axis{stroke:var(--axis)}
.chart polyline{fill:none;stroke-width:2;stroke-linejoin:round}
.chart text{fill:var(--ink2);font-size:12px}.chart .end{text-anchor:end}.chart .mid{text-anchor:middle}
.chart .mark{stroke:var(--ink2);stroke-dasharray:3 4}
.chart .hair{stroke:var(--axis);visibility:hidden}
.tip{position:absolute;top:8px;right:14px;font-size:13px;color:var(--ink2);font-variant-numeric:tabular-nums}
.split{display:flex;gap:2px;height:22px;margin-bottom:10px}.split i{border-radius:3px;min-width:1px}
.wide{overflow:auto;max-height:560px}.wide>svg{overflow:visible}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--grid);white-space:nowrap}
th{color:var(--ink2);font-weight:500;font-size:13px}td.n,th.n{text-align:right}
.bar{width:30%;min-width:120px}.bar i{display:block;height:10px;border-radius:0 4px 4px 0;background:var(--s1)}.planned i{background:var(--rest)}
pre{margin:0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}summary{cursor:pointer;font-weight:600}
.session{margin-top:30px;border-top:2px solid var(--grid);padding-top:14px}.session>summary{font-size:17px}
.session .facts{margin:8px 0 0}.session h2{font-size:15px;margin:18px 0 8px}.bar .split{margin:0;height:14px}.bar .split i{height:auto;border-radius:3px}
)css";

/// Hovering over a chart draws a vertical line at the nearest point and shows the values there.
inline constexpr std::string_view kReportScript = R"js(
for (const svg of document.querySelectorAll('svg.chart')) {
  const lines = JSON.parse(svg.dataset.lines);
  const hair = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  hair.setAttribute('class', 'hair');
  hair.setAttribute('y1', 10);
  hair.setAttribute('y2', 206);
  svg.append(hair);
  const tip = document.createElement('div');
  tip.className = 'tip';
  svg.parentNode.append(tip);
  const nearest = (points, x) => points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const found = lines.filter(line => line[1].length).map(line => [line[0], nearest(line[1], x)]);
    hair.setAttribute('x1', found[0][1][0]);
    hair.setAttribute('x2', found[0][1][0]);
    hair.style.visibility = 'visible';
    tip.textContent = found.map(f => `${f[0]} ${f[1][3]} at ${f[1][2]}`).join('   ');
  };
  svg.onpointerleave = () => { hair.style.visibility = 'hidden'; tip.textContent = ''; };
}
)js";

}  // namespace colonnade::record
