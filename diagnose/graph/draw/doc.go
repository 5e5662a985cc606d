// Package draw draws the graph of a diagnosis, with the states of its nodes, as Mermaid, DOT, SVG
// or plain text.
//
// The outputs are self-contained: an SVG has no scripts, style sheets or references to other files,
// so that a page with the strictest policy can include it. Names and messages are untrusted: they
// are bounded, and escaped for the output format.
//
// The package has its own layout algorithm (layers, barycentre order, positions by isotonic
// regression), because an agent should not contain a browser engine or WebAssembly to place some
// dozen boxes.
package draw
