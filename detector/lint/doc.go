// Package lint checks patterns for kernel log lines, and alerts on them, before a fault
// reveals that they don't work.
//
// A corpus of lines (corpus.yaml: fault, kernels, wording) represents the kernels: a pattern that
// matches none of a fault's lines is dead, and one that matches the lines of some kernels only will
// be. The input is rules from node-problem-detector's files ([Input.FromNPD]) and from rule files
// ([Input.FromRules]), and Prometheus alert rules ([ParseAlerts]); [Check] returns findings.
//
// A pattern that is unrelated to all lines of the corpus is not judged: the corpus
// contains the usual faults of a node, not every kernel message.
package lint
