package mistake

import "strconv"

// Suggest returns `, did you mean "x"?` for the known name nearest to a wrong
// one, or the empty string where none is near.
func Suggest(wrong string, known []string) string {
	best, bestDistance := "", 1+len(wrong)/3
	if len(wrong) > longest {
		return ""
	}
	for _, k := range known {
		if len(k) > longest {
			continue
		}
		if d := distance(wrong, k); d <= bestDistance && 2*d <= len(k) && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + strconv.Quote(best) + "?"
}
