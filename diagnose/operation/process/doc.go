// Package process has the operations about processes. Other packages use it to check that a process
// is still the same, and to find its owner ([OwnerOf]).
package process
