// Package diagnosetest has the tests in which real faults lead an agent to their causes: by
// the shipped triggers, with the real program, over kill -9. It holds nothing else.
package diagnosetest
