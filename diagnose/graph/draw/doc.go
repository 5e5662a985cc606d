// Package draw shows the graph of a diagnosis, and what became of its nodes, as Mermaid,
// DOT, SVG or plain text.
//
// All of them are whole in themselves: an SVG has no script, no style sheet and names no
// other file, so that it can stand in a page under the strictest policy. Names and
// messages come from others: they are bounded, and escaped for the form that they are
// written in.
//
// The layout is an own one (layers, order by barycentre, positions by isotonic
// regression): an agent should carry no browser engine or WebAssembly to place some
// dozen boxes.
package draw
