// Package process has the operations about processes, and what those of other packages ask
// about one: whether it is still the same, and whose it is ([OwnerOf]).
package process
