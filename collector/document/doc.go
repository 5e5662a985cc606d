// Package document reads YAML and JSON files that people write. It reports every mistake of a
// file at once, each with its file, line, column and field, and suggests the names that were
// probably meant.
//
// [Read] reads one document of settings or rules; [Reader] then decodes it node by node, because
// only nodes know their positions. [Parse] reads manifests, any number of objects in a file, and
// refuses values that other YAML readers would read differently. Both refuse aliases and files
// that are too large.
package document
