// Package ruledoc writes a page of Markdown for each rule of a set, and an index.
// The pages follow from the rules alone: the same rules give the same text to the
// byte. What a rule says stands in them as it is, not as Markdown.
package ruledoc
