package strictyaml

import "strconv"

// Suggest returns `, did you mean "x"?` for the known name nearest to a wrong
// one, or the empty string where none is near.
func Suggest(wrong string, known []string) string {
	best, bestDistance := "", 1+len(wrong)/3
	if len(wrong) > 64 {
		return "" // no name is that long, and the distance costs len × len
	}
	for _, k := range known {
		if d := distance(wrong, k); d <= bestDistance && 2*d <= len(k) && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + strconv.Quote(best) + "?"
}

// distance is the Levenshtein distance, case ignored in ASCII: a wrong capital
// is the commonest slip.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if lower(a[i]) == lower(b[j]) {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
