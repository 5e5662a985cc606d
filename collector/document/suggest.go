package document

import (
	"slices"
	"strconv"
	"strings"
)

const (
	mostNear = 3  // suggestions per mistake
	longest  = 64 // longer names are not compared: the distance costs length × length
)

// Suggest returns the names that a wrong one may mean, as `, did you mean "x" or "y"?`: those with
// the smallest distance, else those that contain it. Empty if there are none.
func Suggest[T ~string](wrong T, known []T) string {
	if len(wrong) > longest {
		return ""
	}
	var near, around []string
	least := 1 + len(wrong)/3
	for _, name := range known {
		k := string(name)
		if len(k) > longest {
			continue
		}
		switch d := distance(string(wrong), k); {
		case d <= least && 2*d <= len(k):
			if d < least {
				near, least = nil, d
			}
			near = append(near, strconv.Quote(k))
		case len(wrong) > 3 && strings.Contains(k, string(wrong)):
			around = append(around, strconv.Quote(k)) // for a name of which a part was left out, such as accept-queue
		}
	}
	if len(near) == 0 {
		near = around
	}
	if len(near) == 0 {
		return ""
	}
	slices.Sort(near)
	near = slices.Compact(near)
	return ", did you mean " + strings.Join(near[:min(mostNear, len(near))], " or ") + "?"
}

// distance returns the number of characters to change, insert or delete (Levenshtein), ignoring
// case: a wrong capital is the most common typo.
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
