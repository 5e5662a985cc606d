package logpattern

// Literals returns the texts of which a match must contain one (ASCII letters in any case). If
// there are none, the expression runs on every line.
func (s *Set) Literals(i int) []string { return s.patterns[i].literals }
