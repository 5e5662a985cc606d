// Package lint reports what is wrong with patterns for kernel lines and with alerts on
// them, before a fault does.
//
// A corpus of lines (corpus.yaml: fault, kernels, wording) stands for the kernels: a
// pattern that matches none of a fault's lines is dead, one that matches those of
// some kernels only is about to be. Input is rules of node-problem-detector's files
// ([FromNPD]) and of rule files ([FromRules]), and Prometheus alert rules
// ([ParseAlerts]); [Check] returns findings.
//
// A pattern that no line of the corpus is about is not judged: the corpus knows the
// usual faults of a node, not every line of the kernel.
package lint
