package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// EnvPrefix is the prefix of all variables.
const EnvPrefix = "KERNOSIS_"

// envName returns the variable of a key, such as KERNOSIS_STATE_DIR for state-dir.
func envName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

// bindEnv applies environment variables to keys of the struct t that no flag sets. It refuses
// variables of keys that can only be set in the file. It only warns of unknown variables: Kubernetes
// sets variables for the services of a namespace, and a pod must not fail to start because somebody
// created a service with such a name.
func bindEnv(v *viper.Viper, fs *pflag.FlagSet, environ []string, t reflect.Type, origins Origins) (warnings []string, err error) {
	known := map[string]string{envName(fileFlag): fileFlag}
	for _, k := range keys(t) {
		known[envName(k)] = k
	}
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, EnvPrefix) || value == "" || serviceLink(name, value) {
			continue
		}
		key, ok := known[name]
		switch f := fs.Lookup(key); {
		case !ok:
			warnings = append(warnings, "unknown environment variable "+name)
		case onlyInFile(t, key):
			return nil, fmt.Errorf("%s: can't be set by a variable: set %s in the configuration file (--config)", name, key)
		case f == nil: // a key of another command
		default:
			if err := checkText(f.Value.Type(), value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if !f.Changed {
				v.Set(key, value)
			}
			origins[key] = "env " + name
		}
	}
	return warnings, nil
}

// onlyInFile reports whether a key of the struct t has neither flag nor variable.
func onlyInFile(t reflect.Type, key string) bool {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == key {
			return f.Tag.Get("mapstructure") == "-"
		}
	}
	return false
}

var (
	linkName = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	linkURL  = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// serviceLink reports whether kubelet has set the variable for a service, such as
// KERNOSIS_PORT=tcp://10.0.0.1:443 for a service "kernosis".
func serviceLink(name, value string) bool {
	return linkName.MatchString(name) || strings.HasSuffix(name, "_PORT") && linkURL.MatchString(value)
}

// checkText returns an error if text is not a valid value of a flag's type.
func checkText(flagType, text string) (err error) {
	want := ""
	switch flagType {
	case "bool":
		want = "true or false"
		_, err = strconv.ParseBool(text)
	case "int", "int64":
		want = "a whole number"
		_, err = strconv.ParseInt(text, 0, 64)
	case "uint16":
		want = "a whole number up to 65535"
		_, err = strconv.ParseUint(text, 0, 16)
	case "float32", "float64":
		want = "a number"
		_, err = strconv.ParseFloat(text, 64)
	case "duration":
		want = "a duration such as 30s"
		_, err = time.ParseDuration(text)
	}
	if err != nil {
		return fmt.Errorf("%q, want %s", text, want)
	}
	return nil
}
