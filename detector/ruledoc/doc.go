// Package ruledoc writes a Markdown page for each rule of a set, and an index.
// The output depends only on the rules: the same rules give exactly the same bytes.
// Texts of rules are escaped and not interpreted as Markdown.
package ruledoc
