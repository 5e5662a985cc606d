package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector"
)

// alreadySet returns an error where another rule sets a condition that one rule has for
// itself: whoever came second would make it True and never see why.
func alreadySet(rules *detector.RuleSet, condition, own, of string) error {
	all := rules.Rules()
	i := slices.IndexFunc(all, func(r *detector.Rule) bool { return strings.EqualFold(r.Condition, condition) && r.Name != own })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("condition %s%s is set by rule %s (%s:%d) already", condition, of, all[i].Name, all[i].File, all[i].Line)
}
