// Package logpattern finds the lines of a log that match any of many patterns.
//
// It is a leaf: the rules' and node-problem-detector's (NPD's) patterns are compiled to one [Set],
// each log stream feeds its lines to a [Matcher] of its own, and only matches become events. Most
// lines match nothing, so that case is cheap. One automaton (Aho-Corasick) over the literals that
// a match must contain reads each line once, regardless of the number of patterns. A pattern's
// regular expression runs only if one of its literals was found.
//
// # Lines
//
// A line is the argument of one call of [Matcher.Match]. If it contains newlines, each part counts
// as a separate line, except for NPD's patterns. Kernel records and journal messages may contain
// newlines: "Unstable clock detected … \n If you want to keep using …" is one record of every
// virtual machine's boot.
//
// Patterns are RE2 (package regexp, Perl syntax). A pattern that spans one line is searched in
// each line separately. One that spans N lines is searched in the last N lines joined by newlines,
// with ^ and $ matching the start and end of a line. It is reported only if a match ends in the
// latest line, so the same text is not reported again when a further line comes.
//
// # NPD's patterns
//
// [Pattern].AnchorEnd does what NPD does (pkg/systemlogmonitor/log_buffer.go): `\z` is appended to
// the expression, which is searched in the last bufferSize entries joined by newlines, so an
// expression without a trailing `.*` does not match if text follows. `^` is the start of that
// buffer, not of the line. Until the buffer is full, empty lines take the place of the missing
// ones. Up to v1.36.0 NPD appended `\z` without a group, so in `a|b` it applied to b only: a
// matched anywhere in the buffer, again at each of the nine following lines. That bug has been
// fixed in NPD (pull request 1338), and is not reproduced here.
//
// # Bounds
//
// Lines are untrusted: [MaxLine] bytes of each are examined, [maxWindow] bytes of earlier ones are
// kept. Expressions come from the operator: their bounds make a mistake an error at start instead
// of a node that hangs. Cut lines are reported and counted.
//
// It reads no logs, does not depend on rules, and starts no goroutines.
package logpattern
