// Package metrics exports what passes through the agent as Prometheus metrics.
//
// Labels are bounded: kinds, stems, rules and condition types come from the code or from rule
// files, never from a fault's subject. Problems are counted by rule; the journal records which pod
// or device was affected.
package metrics
