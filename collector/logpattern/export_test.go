package logpattern

// Literals returns the texts without one of which (ASCII letters in any case) the pattern cannot
// match; none: the expression is run on every line.
func (s *Set) Literals(i int) []string { return s.patterns[i].literals }
