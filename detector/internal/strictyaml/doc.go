// Package strictyaml reads YAML for people: every mistake of a file is found
// in one pass and told as file:line:column, unknown keys are mistakes, and a
// key that is nearly right is named.
//
// It is used by the rule loader and the rule test reader. It decodes node by
// node instead of into structs, because only nodes know their position.
package strictyaml
