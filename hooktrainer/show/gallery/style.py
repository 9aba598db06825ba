"""How the gallery looks, on top of the style that all pages share."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
body{max-width:76rem;padding:2.5rem 1.25rem 4rem}
header{margin-bottom:1.5rem}h1{font-size:1.75rem;letter-spacing:-.01em}
h2{margin-top:2.5rem}h3{font-size:1rem;margin:.6rem 0 0;font-weight:600}
.small,footer{color:var(--dim);font-size:.85rem}
figcaption b{color:var(--ink);font-weight:600}
.curve .mean{stroke-width:1.75}
.mark{fill:var(--page);stroke:var(--c0);stroke-width:2.25;cursor:pointer;transition:r .15s}
a:hover .mark,a:focus .mark{fill:var(--c0);r:7px}a:focus{outline:none}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));
gap:1.25rem;margin-top:1.5rem}
@media (min-width:60rem){.n1{grid-template-columns:minmax(0,32rem)}
.n2{grid-template-columns:1fr 1fr}
.n3{grid-template-columns:repeat(3,1fr)}.n4{grid-template-columns:repeat(4,1fr)}}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:0 0 .85rem;overflow:hidden;scroll-margin:1rem}
.card:target{outline:2px solid var(--c0)}
.card img{display:block;width:100%;height:auto;background:#fff}
.card>h3,.card>p{margin-left:1rem;margin-right:1rem}
.return{color:var(--ink);margin:0}.return b{font-variant-numeric:tabular-nums;font-weight:600}
.traces{padding:.6rem .75rem 0}.curve+.small{margin-top:1.25rem}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));
gap:0 3rem}
.columns section{min-width:0}.sub td{color:var(--dim)}.sub td:first-child{padding-left:1rem}
.share{width:30%;min-width:5rem;padding-right:0}
.share i{display:block;height:.5rem;border-radius:.25rem;background:var(--c0);opacity:.75}
.options td{white-space:normal;overflow-wrap:anywhere}.options td:first-child{color:var(--dim)}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
code{font:.95em ui-monospace,monospace}
html{scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
@media (max-width:40rem){body{padding:1.5rem 1rem 3rem}.curve{padding:.5rem}

.share{min-width:3rem}
.cards{grid-template-columns:1fr 1fr;gap:.75rem}.n1,.traced{grid-template-columns:1fr}
.card>h3,.card>p{margin-left:.7rem;margin-right:.7rem}.return{font-size:.9rem}}
@media (prefers-color-scheme:dark){.card img{filter:brightness(.88)}}
@media print{.card{break-inside:avoid}}
"""
