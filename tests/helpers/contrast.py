"""How far texts stand out from their ground."""

CONTRAST = """(selector) => {
    const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = (text) => rgb(text).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (node) => {
        const colour = getComputedStyle(node).backgroundColor;
        return colour === "rgba(0, 0, 0, 0)" ? ground(node.parentElement) : colour;
    };
    return [...document.querySelectorAll(selector)].map((node) => {
        const pair = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    });
}"""
"""JavaScript: the contrast of the texts of what a selector finds, as WCAG 2.2 has it."""
