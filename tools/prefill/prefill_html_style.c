/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks of the report. Colours of policies (p), stages (s), lines (c) and
 * shades of load (q) can be told apart by colour-blind eyes, and each has a
 * shape, letters or a number besides. Text has a contrast of at least 4.5,
 * marks of at least 3, on the background of both themes.
 */
#include "prefill_html.h"

/* Policies by number: off, eplb, freebalance, both, ferry, eplb+ferry. */
static const char *const colours[] = {
	":root{color-scheme:light;--bg:#fff;--card:#f5f6f8;--ink:#1b2430;"
	"--soft:#55606e;--rule:#d9dee5;--grid:#e3e7ec;--accent:#0b6390;"
	"--good:#0a6b47;--bad:#b3261e;--edge:#1b243066;--shade:#1b243088;"
	"--p0:#858b96;--p1:#b07f16;--p2:#5b83dc;--p3:#6a25de;--p4:#0b6034;"
	"--p5:#5a0f4a}",
	"@media screen and (prefers-color-scheme:dark){:root{"
	"color-scheme:dark;--bg:#12161c;--card:#1b212a;--ink:#e7ebf1;"
	"--soft:#a5afbd;--rule:#333d4a;--grid:#28303b;--accent:#6dbbe8;"
	"--good:#5fd0a2;--bad:#ff8f85;--edge:#12161c;--shade:#a5afbdaa;"
	"--p0:#7c879a;--p1:#f2b632;--p2:#6f93fb;--p3:#dcd8f3;--p4:#76f0a8;"
	"--p5:#ef3a57}}",
	".p0{--c:var(--p0)}.p1{--c:var(--p1)}.p2{--c:var(--p2)}",
	".p3{--c:var(--p3)}.p4{--c:var(--p4)}.p5{--c:var(--p5)}",
	".c0{--c:var(--p4)}.c1{--c:var(--p2)}.c2{--c:var(--p1)}",
	".before{--c:var(--soft)}",
	/* Stages: what stands on them is dark or white. */
	".s0{--f:#ced1d6}.s1{--f:#d07426}.s2{--f:#2468d6;--t:#fff}",
	".s3{--f:url(#stripes)}.s4{--f:#e9d14a}.s5{--f:#5cb8ee}",
	".s6{--f:#1c6a44;--t:#fff}.s7{--f:#ac5299;--t:#fff}",
	"g[class^=s]>text{fill:var(--t,#10151b)}",
	"rect[class^=s],g[class^=s]>rect{fill:var(--f);stroke:var(--edge);"
	"stroke-width:.6}",
	/* Shades: who has as much as all, q4, is as plain as the page; who has
         * less is blue, who has more is orange. */
	".q0{--f:#2b6ca8;--t:#fff}.q1{--f:#7fb0d8;--t:#10151b}",
	".q2{--f:#b4d2ea;--t:#10151b}.q3{--f:#dbe9f4;--t:#10151b}",
	".q4{--f:#f6f5f1;--t:#10151b}.q5{--f:#f7dcae;--t:#10151b}",
	".q6{--f:#eeb062;--t:#10151b}.q7{--f:#b25a24;--t:#fff}",
	".q8{--f:#6b2318;--t:#fff}",
	"@media screen and (prefers-color-scheme:dark){"
	".q0{--f:#8fc4f2;--t:#10151b}.q1{--f:#4f8cbf;--t:#10151b}"
	".q2{--f:#2c5273;--t:#e7ebf1}.q3{--f:#203344;--t:#e7ebf1}"
	".q4{--f:#20252c;--t:#e7ebf1}.q5{--f:#4d3720;--t:#e7ebf1}"
	".q6{--f:#8a5a24;--t:#fff}.q7{--f:#dc9f4c;--t:#10151b}"
	".q8{--f:#ffe3b0;--t:#10151b}}",
	"g[class^=q]>rect{fill:var(--f);stroke:var(--rule);stroke-width:.5}",
	"g[class^=q]>text{fill:var(--t);font-size:10.5px}",
};

static const char *const page_rules[] = {
	"*{box-sizing:border-box}",
	"html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}",
	"body{margin:0 auto;max-width:1120px;padding:0 16px 48px;"
	"background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,"
	"-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif;"
	"font-variant-numeric:tabular-nums;overflow-wrap:break-word}",
	"h1{font-size:clamp(1.7rem,5.2vw,2.7rem);line-height:1.15;"
	"letter-spacing:-.02em;font-weight:650;margin:.2em 0 .5em;"
	"text-wrap:balance}",
	"h1 strong{color:var(--good);font-weight:inherit}",
	"h2{font-size:1.5rem;line-height:1.25;letter-spacing:-.01em;"
	"margin:0 0 .6em;text-wrap:balance}",
	"h3{font-size:1.1rem;margin:2.2em 0 .5em}",
	"h4{font-size:1rem;margin:0 0 .5em;font-weight:600}",
	"p{margin:.6em 0;max-width:72ch}",
	"a{color:var(--accent)}",
	":focus-visible{outline:2px solid var(--accent);outline-offset:3px;"
	"border-radius:3px}",
	"header{padding:40px 0 8px}",
	".kicker{color:var(--accent);font-weight:600;margin:0}",
	".lead{font-size:1.08rem;color:var(--soft)}",
	".soft{color:var(--soft);font-weight:400}.small{font-size:.875rem}",
	"nav ol{list-style:none;display:flex;flex-wrap:wrap;gap:6px 18px;"
	"padding:0;margin:1.2em 0 0}",
	"nav a{display:inline-block;padding:4px 0}",
	"section{border-top:1px solid var(--rule);padding:36px 0 12px;"
	"margin-top:28px}",
	"code{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"
	"\"DejaVu Sans Mono\",monospace;overflow-wrap:anywhere}",
	"code span{display:inline-block}",
	".file{overflow-wrap:anywhere}",
	".facts{margin:0}",
	".facts>div{display:grid;grid-template-columns:7.5rem 1fr;gap:4px 16px;"
	"padding:10px 0;border-bottom:1px solid var(--grid)}",
	"dt{color:var(--soft)}dd{margin:0;min-width:0}",
	".policies{list-style:none;margin:0;padding:0}",
	".policies li{margin:0 0 4px}",
	".run{font-weight:600;white-space:nowrap}",
	".run .key{margin-right:6px;vertical-align:-1px}",
	".note{border-left:3px solid var(--accent);padding:2px 0 2px 14px;"
	"margin:1.2em 0}",
	".verdict{font-size:1.25rem;font-weight:600}",
	".good{color:var(--good)}.bad{color:var(--bad)}",
	"footer{border-top:1px solid var(--rule);margin-top:36px;"
	"padding-top:14px;color:var(--soft);font-size:.875rem}",
};

static const char *const part_rules[] = {
	".cards{list-style:none;padding:0;margin:1.2em 0 .8em;display:grid;"
	"gap:12px;grid-template-columns:repeat(auto-fill,"
	"minmax(min(100%,220px),1fr))}",
	"@media (min-width:700px){.cards{grid-template-columns:"
	"repeat(var(--n),minmax(0,360px))}}",
	".card{background:var(--card);border-radius:10px;padding:14px 14px 8px;"
	"border-top:4px solid var(--c)}",
	".card h3{margin:0;font-size:1rem}",
	".big{font-size:1.5rem;font-weight:650;letter-spacing:-.02em;"
	"margin:.1em 0 .1em;white-space:nowrap}",
	".card dl{margin:.5em 0 0;font-size:.875rem;line-height:1.35;"
	"display:grid;gap:6px 12px;grid-template-columns:"
	"repeat(auto-fit,minmax(108px,1fr))}",
	".panels{display:grid;gap:26px 32px;margin:1em 0;"
	"grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr))}",
	".panels.large{grid-template-columns:repeat(auto-fit,"
	"minmax(min(100%,520px),1fr))}",
	".panel{min-width:0;margin:0;max-width:460px}.large "
	".panel{max-width:none}",
	"figure{margin:0}figcaption{margin:0 0 6px}",
	"figure+figure{margin-top:20px}",
	".row{display:grid;grid-template-columns:1fr auto;gap:0 10px;"
	"align-items:center;margin:0 0 6px;font-size:.875rem}",
	".row .bar{grid-column:1/-1;grid-row:2}",
	".row .what{text-align:right;white-space:nowrap}",
	"@media (min-width:700px){.bars .row{grid-template-columns:10.5rem 1fr "
	"8rem;gap:0 14px;margin:0 0 10px}.bars .row .bar{grid-column:2;"
	"grid-row:1}}",
	/* A shadow at the side where there is more to see. */
	".scroll{overflow-x:auto;max-width:100%;background:"
	"linear-gradient(90deg,var(--bg) 40%,transparent) 0 0/44px 100% "
	"no-repeat local,linear-gradient(270deg,var(--bg) 40%,transparent) "
	"100% 0/44px 100% no-repeat local,linear-gradient(90deg,var(--shade),"
	"transparent) 0 0/16px 100% no-repeat,linear-gradient(270deg,"
	"var(--shade),transparent) 100% 0/16px 100% no-repeat}",
	".scroll>svg{min-width:var(--w,0)}",
	"table{border-collapse:collapse;font-size:.875rem;margin:.4em 0 .6em}",
	"caption{text-align:left;color:var(--soft);padding:0 0 6px}",
	"th,td{text-align:right;padding:5px 8px;white-space:nowrap;"
	"border-bottom:1px solid var(--grid)}",
	"thead th{color:var(--soft);font-weight:500;vertical-align:bottom;"
	"white-space:normal;min-width:4.6em;"
	"border-bottom-color:var(--rule)}",
	"tr>:first-child{text-align:left;padding-left:0}",
	"tbody th{font-weight:400}",
	"details{margin:.8em 0}",
	"summary{color:var(--accent);cursor:pointer;padding:4px 0;"
	"width:fit-content}",
	".legend{list-style:none;display:flex;flex-wrap:wrap;gap:6px 18px;"
	"padding:0;margin:.8em 0;font-size:.875rem;max-width:none}",
	".key{vertical-align:-2px;margin-right:7px;flex:none}",
};

static const char *const picture_rules[] = {
	"svg{display:block;overflow:visible}.key{display:inline-block}",
	"svg[viewBox]{width:100%;height:auto}",
	"svg text{font-size:12px;fill:var(--soft)}",
	"svg .e{text-anchor:end}svg .m{text-anchor:middle}",
	"svg .strong{font-weight:600;fill:var(--ink)}",
	"svg .name{fill:var(--ink);font-weight:600;font-size:13px}",
	".key text{font-size:10.5px}.lanes g text{font-size:10.5px}",
	".grid,.track{stroke:var(--grid);fill:none}",
	".one{stroke:var(--soft);stroke-width:1.5}",
	".line{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round}",
	".dash{stroke-dasharray:5 4}",
	".lead{fill:none}path.lead{stroke:var(--c);stroke-width:1;opacity:.6}",
	".mark{fill:var(--c);stroke:var(--bg);stroke-width:1}",
	".hollow{fill:var(--bg);stroke:var(--c);stroke-width:1.6}",
	".card .hollow{fill:var(--card)}.card .mark{stroke:var(--card)}",
	".fill{fill:var(--c)}",
	".dot{fill:var(--p4);stroke:var(--bg);stroke-width:.5}",
	".heat{max-width:460px}.large .heat{max-width:720px}",
	".key-scale{max-width:340px;margin:10px 0}",
	".wide{max-width:960px}.narrow{display:none!important}",
	"@media screen and (max-width:759px){.wide{display:none!important}"
	".narrow{display:block!important;max-width:440px}"
	".legend.narrow{display:flex!important}"
	".facts>div{grid-template-columns:minmax(0,1fr)}header{padding-top:"
	"24px}}",
	"@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}",
	"@media print{body{max-width:none;font-size:11pt}nav{display:none}"
	".card,figure,.row,tr,.facts>div{break-inside:avoid}"
	"h2,h3,h4{break-after:avoid}.scroll{overflow:visible;background:none}"
	".scroll>svg{min-width:0}*{print-color-adjust:exact;"
	"-webkit-print-color-adjust:exact}"
	"details:not([open]){display:none}}",
};

static void put_rules(struct page *page, const char *const *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		html_put(&page->html, "%s\n", rules[i]);
}

#define PUT_RULES(page, rules)                                                 \
	put_rules(page, rules, sizeof(rules) / sizeof(*(rules)))

void page_style(struct page *page)
{
	html_put(&page->html, "<style>\n");
	PUT_RULES(page, colours);
	PUT_RULES(page, page_rules);
	PUT_RULES(page, part_rules);
	PUT_RULES(page, picture_rules);
	html_put(&page->html, "</style>\n");
}
