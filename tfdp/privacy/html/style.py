"""The look of the page: one column that fits a phone, light and dark, fit for print."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5b6474; --line: #dfe3ea;
  --page: #f5f6f8; --card: #ffffff; --own: #1f5fae; --other: #a06a1c; --warn: #fdf5e3;
  --edge: #c48a1a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9ba5b5; --line: #323a48;
  --page: #12161d; --card: #1a2029; --own: #7fb2f2; --other: #dcab62; --warn: #2c2619;
  --edge: #b08834; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem 3rem; }
header { padding: 0 .25rem 1rem; }
.kind { margin: 0; color: var(--soft); font-size: .8rem; letter-spacing: .09em;
  text-transform: uppercase; }
h1 { margin: .3rem 0 .6rem; font-size: clamp(1.9rem, 8vw, 2.9rem); line-height: 1.15;
  font-weight: 650; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
h1 span { white-space: nowrap; }
h2 { margin: 0 0 .7rem; font-size: 1.15rem; line-height: 1.3; }
p { margin: .6rem 0; } p:last-child { margin-bottom: 0; }
section, .notes { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.15rem 1.15rem 1.25rem; margin: 0 0 1rem; }
.notes { background: var(--warn); border-color: var(--edge); }
ul { margin: .4rem 0; padding-left: 1.2rem; } li { margin: .3rem 0; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .5rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child {
  padding-right: 0; }
th { font-weight: 400; color: var(--soft); }
.facts th { width: 34%; } .facts td, .ledger td:last-child { overflow-wrap: anywhere; }
.ledger { font-size: .9rem; } .figures td { text-align: right; white-space: nowrap; }
.figures tr.own > * { font-weight: 650; color: var(--ink); }
.attack { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; margin: .9rem 0; }
.attack b { display: block; font-size: 1.7rem; line-height: 1.2; font-weight: 650; }
.bar { height: 8px; margin: .5rem 0; border-radius: 4px; background: var(--line);
  overflow: hidden; } .bar i { display: block; height: 100%; background: var(--own); }
figure { margin: 0; } svg { display: block; width: 100%; max-width: 34rem; margin: 0 auto;
  overflow: visible; }
svg text { font-size: 12px; fill: var(--soft); } svg .name { fill: var(--ink);
  paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg path { fill: none; stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .target { stroke: var(--soft); stroke-dasharray: 5 4; }
svg polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
svg polyline.own { stroke: var(--own); } svg polyline.other { stroke: var(--other);
  stroke-width: 1.5; } svg circle { fill: var(--own); }
.key { display: inline-block; width: 1.4em; height: 3px; margin: 0 .4em .25em 0;
  vertical-align: middle; border-radius: 2px; background: var(--own); }
.key.other { background: var(--other); }
figcaption span { margin-right: 1.1em; white-space: nowrap; }
details { margin-top: .8rem; } summary { cursor: pointer; color: var(--soft); }
pre { white-space: pre-wrap; font: .8rem/1.5 ui-monospace, "Liberation Mono", monospace; }
code { font: .88em ui-monospace, "Liberation Mono", monospace; }
footer { padding: .5rem .25rem; color: var(--soft); font-size: .9rem; }
@media (max-width: 40rem) {
  .ledger thead { display: none; } .ledger, .ledger tbody, .ledger tr { display: block; }
  .ledger tr { padding: .55rem 0; border-bottom: 1px solid var(--line); }
  .ledger tr:last-child { border-bottom: 0; }
  .ledger td { display: flex; justify-content: space-between; gap: 1rem; padding: .12rem 0;
    border: 0; text-align: right; }
  .ledger td::before { content: attr(data-name); color: var(--soft); text-align: left; } }
@media (max-width: 30rem) {
  .facts tbody, .facts tr, .facts th, .facts td { display: block; width: auto; }
  .facts th { padding: .5rem 0 0; border: 0; font-size: .9rem; }
  .facts td { padding: 0 0 .5rem; }
  .facts tr:not(:last-child) td { border-bottom: 1px solid var(--line); }
  svg text { font-size: 15.5px; } }
@media (max-width: 23rem) { main { padding: 2rem .5rem 3rem; } svg text { font-size: 17.5px; } }
@media print { body { background: none; } main { max-width: none; padding: 0; }
  section, .notes { break-inside: avoid; } }
"""
