package logpattern

// Hits is the result of [Matcher.Match] for one line. It is reused: its contents are valid until
// the next call with it or with the same Matcher, and only while the line isn't changed, because
// its texts are slices of the line if possible.
type Hits struct {
	// Hits are in the order of the patterns, one per pattern.
	Hits []Hit
	// Cut: the line was longer than MaxLine, and the rest was not examined. An expression's end
	// then matches where it was cut.
	Cut bool

	captures []Capture
}

// Hit is one pattern that matched.
type Hit struct {
	Pattern int // index in the Set
	// Text is the part that the expression matched, Context the whole lines that it touches,
	// joined by newlines: NPD's message. They may be as long as what a Matcher keeps, 80 KiB.
	Text, Context []byte
	// Lines is how many of the lines given to Match the match touches, at least 1. NPD reports the
	// time of the first of them.
	Lines int
	// Captures are the named groups that participated in the match, in the order of the
	// expression, at most 16. RE2 allows groups with the same name; then the name may occur more
	// than once.
	Captures []Capture
}

// Capture is the text of a named group.
type Capture struct {
	Name string
	Text []byte
}

func (h *Hits) reset() {
	h.Hits, h.captures, h.Cut = h.Hits[:0], h.captures[:0], false
}

// add adds a hit: at are the bounds of all groups in text.
func (h *Hits) add(index int, c *compiled, text []byte, at []int, context []byte, lines int) {
	first := len(h.captures)
	for _, g := range c.captures {
		if from := at[2*g.group]; from >= 0 {
			h.captures = append(h.captures, Capture{g.name, text[from:at[2*g.group+1]]})
		}
	}
	h.Hits = append(h.Hits, Hit{
		Pattern:  index,
		Text:     text[at[2*c.group]:at[2*c.group+1]],
		Context:  context,
		Lines:    lines,
		Captures: h.captures[first:len(h.captures):len(h.captures)],
	})
}
