package detector

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/mistake"
)

// matchPrefix begins the fields that a rule's own pattern makes: one for each
// of its named groups.
const matchPrefix = "match."

func logFields() []*Field {
	of := func(e *event.Event) *event.LogData { return e.Log }
	field := func(name string, few bool, doc string, read func(*event.LogData) value) *Field {
		return &Field{Name: "log." + name, Type: String, Kinds: kinds(event.Log), Doc: doc, few: few, read: part(of, read)}
	}
	return []*Field{
		field("name", true, "which log: kmsg, journald, or the name a file is configured under", func(d *event.LogData) value { return text(d.Log) }),
		field("origin", false, "who has written it, as far as that is sure: kernel, process (a crash line of the kernel), facility, path, identifier; of several lines, the last one's", func(d *event.LogData) value { return text(d.Origin) }),
		field("unit", false, "systemd unit of the writer", func(d *event.LogData) value { return text(d.Unit) }),
		field("priority", true, "emerg, alert, crit, err, warning, notice, info, debug; empty: the log does not say", func(d *event.LogData) value { return text(d.Priority) }),
		field("text", false, "the lines that the rule's pattern matched, whole", func(d *event.LogData) value { return text(d.Text) }),
	}
}

// captured is the value of a named group: the captured text, or nothing where
// the group took no part in the match.
func captured(e *event.Event, group string) value {
	if e.Log == nil {
		return value{}
	}
	return text(e.Log.Captures[group])
}

// withGroups returns a compiler that knows also match.<group> of the groups.
func (c *compiler) withGroups(groups []string) (*compiler, error) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	key := strings.Join(groups, ",")
	if v := c.variants[key]; v != nil {
		return v, nil
	}
	v := &compiler{env: c.env, match: make(map[string]*Field, len(groups)), groups: true}
	var opts []cel.EnvOption
	for _, g := range groups {
		v.match[matchPrefix+g] = &Field{Name: matchPrefix + g, Type: String, Kinds: kinds(event.Log), Doc: "a group of the pattern",
			read: func(e *event.Event) value { return captured(e, g) }}
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

// field returns the field of that name, nil where there is none.
func (c *compiler) field(name string) *Field {
	if f := fieldByName(name); f != nil {
		return f
	}
	return c.match[name]
}

// unknownField is the text of the mistake, with the nearest field there is.
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
	return "unknown field " + strconv.Quote(name) + mistake.Suggest(name, near)
}
