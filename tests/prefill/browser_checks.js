// SPDX-License-Identifier: Apache-2.0
// What is wrong with the page as it is shown: a list of findings. The browser
// test runs it in each of its windows, and passes it on.
(() => {
	const findings = [];
	const found = (what, node) => {
		const id = node && (node.closest("section, header") || {}).id;
		findings.push(what + (id ? " in #" + id : ""));
	};
	const shown = node => node.checkVisibility({
		contentVisibilityAuto: true, visibilityProperty: true
	});
	const all = selector =>
		[...document.querySelectorAll(selector)].filter(shown);
	const words = node => node.textContent.trim().slice(0, 40);

	// The page does not scroll sideways, and nothing sticks out of its box.
	const root = document.documentElement;
	if (root.scrollWidth > window.innerWidth)
		found("page is " + root.scrollWidth + " px wide");
	for (const box of all("body *"))
		if (box.clientWidth && box.scrollWidth > box.clientWidth + 1 &&
		    !(box instanceof SVGElement) && !box.closest(".scroll"))
			found("overflow of " + box.tagName + " " + words(box), box);

	// Labels of a picture are inside of it and apart from each other.
	const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 ||
		a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
	for (const picture of all("svg[viewBox]")) {
		const frame = picture.getBoundingClientRect();
		const labels = [...picture.querySelectorAll("text")].map(
			text => [text, text.getBoundingClientRect()]);
		labels.forEach(([text, box], i) => {
			if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
			    box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
				found("label outside: " + words(text), text);
			for (const [other, place] of labels.slice(i + 1))
				if (!apart(box, place))
					found("labels overlap: " + words(text) + ", " +
					      words(other), text);
		});
	}

	// Words can be read: WCAG AA.
	const numbers = colour => colour.match(/[\d.]+/g).map(Number);
	const light = colour => {
		const [r, g, b] = numbers(colour).slice(0, 3).map(v =>
			v <= 10.31 ? v / 3294.6 :
				Math.pow((v / 255 + 0.055) / 1.055, 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const contrast = (a, b) => {
		const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
		return (x + 0.05) / (y + 0.05);
	};
	const ground = node => {
		for (; node; node = node.parentElement) {
			const colour = getComputedStyle(node).backgroundColor;
			const alpha = numbers(colour)[3];
			if (alpha === undefined || alpha > 0)
				return colour;
		}
		return "rgb(255, 255, 255)";
	};
	const seen = new Set();
	const check_contrast = (node, ink, paper) => {
		if (!ink.startsWith("rgb") || !paper.startsWith("rgb") ||
		    seen.has(ink + paper))
			return;
		seen.add(ink + paper);
		const value = contrast(ink, paper);
		if (value < 4.5)
			found("contrast " + value.toFixed(2) + " of " + words(node) +
			      ": " + ink + " on " + paper, node);
	};
	for (const node of all("body :not(script, style)")) {
		const style = getComputedStyle(node);
		const own = [...node.childNodes].some(
			child => child.nodeType === 3 && child.data.trim());
		if (!own)
			continue;
		if (node instanceof SVGTextElement) {
			const rect = node.parentElement.tagName === "g" &&
				node.parentElement.querySelector(":scope > rect");
			check_contrast(node, style.fill, rect ?
				getComputedStyle(rect).fill : ground(node));
		} else if (!(node instanceof SVGElement))
			check_contrast(node, style.color, ground(node));
	}

	// Who does not see pictures gets words; who has no mouse gets there.
	const ids = new Set();
	for (const node of document.querySelectorAll("[id]")) {
		if (ids.has(node.id))
			found("id twice: " + node.id);
		ids.add(node.id);
	}
	for (const node of document.querySelectorAll("[aria-labelledby]"))
		for (const id of node.getAttribute("aria-labelledby").split(" "))
			if (!ids.has(id) || !words(document.getElementById(id)))
				found("no words for a picture", node);
	for (const picture of document.querySelectorAll("svg"))
		if (!picture.closest("[aria-hidden=true]") &&
		    !picture.closest("[role=img]"))
			found("picture without role", picture);
	for (const box of all(".scroll"))
		if (box.scrollWidth > box.clientWidth + 1 &&
		    getComputedStyle(box).backgroundImage === "none")
			found("nothing shows that it scrolls", box);
	for (const box of document.querySelectorAll(".scroll"))
		if (box.tabIndex !== 0 || !box.getAttribute("aria-label"))
			found("box that the keyboard cannot scroll", box);
	for (const link of document.querySelectorAll("a"))
		if (!document.getElementById(link.hash.slice(1)))
			found("link to nowhere: " + link.hash);
	return findings;
})()
