// Package logpattern finds the lines of a log that any of many patterns match.
//
// It is a leaf: the rules' and node-problem-detector's (NPD's) patterns are
// compiled to one [Set], each log stream feeds its lines to a [Matcher] of its
// own, and only what matched becomes an event. Most lines match nothing, so that
// is the case made cheap: one automaton over the literals that the patterns
// cannot match without (Aho-Corasick) reads each line once, however many
// patterns there are, and a pattern's regular expression runs only where its
// literal was seen.
//
// # Lines
//
// A line is what one call of [Matcher.Match] gets. Where it has newlines inside
// (a kernel record or a journal message may: "Unstable clock detected … \n If
// you want to keep using …" is one record of every virtual machine's boot), each
// part counts as a line of its own, except for NPD's patterns.
//
// Patterns are RE2 (package regexp, Perl syntax). One that spans one line is
// searched in each line by itself. One that spans N lines is searched in the last
// N lines joined by newlines, ^ and $ standing for the start and end of a line,
// and counts where some match of it ends in the latest line; so the same text is
// not reported again when a further line comes.
//
// # NPD's patterns
//
// [Pattern].AnchorEnd does what NPD does (pkg/systemlogmonitor/log_buffer.go):
// the expression gets `\z` behind it and is searched in its last bufferSize
// entries joined by newlines, so that one without a trailing `.*` does not match
// where text follows. `^` is the start of that buffer, not of the line. Before
// the buffer is full, empty lines stand for those that are missing. Up to v1.36.0
// NPD appended `\z` without a group, and in `a|b` it held for b alone: a matched
// anywhere in the buffer, again at each of the nine lines that followed. That was
// a fault, since mended there (its pull request 1338), and is not reproduced.
//
// # Bounds
//
// Lines are others' text: [MaxLine] bytes of each are looked at, [maxWindow]
// bytes of earlier ones are kept. Expressions are the operator's: the bounds on
// them are such that a mistake is an error at start and not a node that stands
// still. What was cut is reported and counted.
//
// It reads no log, knows no rule, starts no goroutine.
package logpattern
