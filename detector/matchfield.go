package detector

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
)

// matchPrefix is the prefix of the fields for the named groups of a rule's pattern.
const matchPrefix = "match."

// captured returns the text that a named group captured, empty if the group took
// no part in the match.
func captured(e *event.Event, group string) event.Value {
	if e.Log == nil {
		return event.Value{}
	}
	return event.Value{Text: display.Prefix(e.Log.Captures[group], event.MaxFieldText)}
}

// withGroups returns a compiler with additional fields match.<group> for the groups.
func (c *compiler) withGroups(groups []string) (*compiler, error) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	key := strings.Join(groups, ",")
	if v := c.variants[key]; v != nil {
		return v, nil
	}
	v := &compiler{env: c.env, match: make(map[string]*event.Field, len(groups)), groups: true}
	var opts []cel.EnvOption
	for _, g := range groups {
		v.match[matchPrefix+g] = &event.Field{Name: matchPrefix + g, Type: event.TypeString, Kinds: []event.Kind{event.Log}, Doc: "a group of the pattern",
			Read: func(e *event.Event) event.Value { return captured(e, g) }}
		opts = append(opts, cel.Variable(matchPrefix+g, cel.StringType))
	}
	if len(opts) > 0 {
		env, err := c.env.Extend(opts...)
		if err != nil {
			return nil, err
		}
		v.env = env
	}
	c.variants[key] = v
	return v, nil
}

// field returns the field of that name, or nil.
func (c *compiler) field(name string) *event.Field {
	if f := event.FieldByName(name); f != nil {
		return f
	}
	return c.match[name]
}

// unknownField returns the error text for an unknown field, with the most similar known one.
func (c *compiler) unknownField(name string) string {
	near := fieldNames()
	if strings.HasPrefix(name, matchPrefix) {
		switch near = slices.Sorted(maps.Keys(c.match)); {
		case !c.groups:
			return "unknown field " + strconv.Quote(name) + ": only the named groups of a rule's pattern are match fields"
		case len(near) == 0:
			return "unknown field " + strconv.Quote(name) + ": the pattern has no named groups, such as (?P<device>\\w+)"
		}
	}
	return "unknown field " + strconv.Quote(name) + document.Suggest(name, near)
}
