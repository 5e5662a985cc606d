package mistake

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

const (
	mostNear = 3  // names that one mistake may have meant
	longest  = 64 // longer names are near none: the distance costs length × length
)

// Near returns the names that a wrong one may mean, as ", did you mean "x" or "y"?", or
// the empty string where none is near.
func Near(wrong string, known []string) string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, k := range known {
		if len(wrong) > longest || len(k) > longest {
			continue
		}
		d := distance(wrong, k)
		// Who leaves a part out types half of the name rightly: accept-queue.
		if d <= 1+len(wrong)/3 && 2*d <= len(k) || len(wrong) > 3 && strings.Contains(k, wrong) {
			near = append(near, candidate{k, d})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	near = slices.Compact(near)
	if len(near) == 0 {
		return ""
	}
	var names []string
	for _, c := range near[:min(mostNear, len(near))] {
		names = append(names, strconv.Quote(c.name))
	}
	return ", did you mean " + strings.Join(names, " or ") + "?"
}

// distance is how many characters must be changed, put in or taken out (Levenshtein), case
// ignored: a wrong capital is the commonest slip.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, change)
		}
	}
	return row[len(b)]
}
