// Package lint checks patterns for kernel log lines, and alerts on them, so that mistakes show
// before a fault occurs.
//
// A corpus (corpus.yaml: fault, kernels, wording) has the lines that kernels print. A pattern that
// matches none of a fault's lines is dead; a pattern that matches only the lines of some kernels is
// dead on the others. The input is rules from node-problem-detector's files ([Input.FromNPD]) and
// from rule files ([Input.FromRules]), and Prometheus alert rules ([ParseAlerts]); [Check] returns
// findings.
//
// Patterns that are unrelated to all lines of the corpus are not judged: the corpus contains the
// usual faults of a node, not every kernel message.
package lint
