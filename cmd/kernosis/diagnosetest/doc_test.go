// Package diagnosetest only has tests in which an agent diagnoses real faults: with the shipped
// Triggers, with the real program, and across kill -9.
package diagnosetest
